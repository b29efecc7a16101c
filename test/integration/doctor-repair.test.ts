import t, { type Test } from "tap";
import { migrateInTree, startInTree } from "../../bench/in-tree.ts";
import { storedVersionsOf } from "../../src/api/crd.ts";
import { MIGRATING_ANNOTATION } from "../../src/api/names.ts";
import { restoredVersion } from "../../src/doctor/restored-version.ts";
import { CRDS, MERGE_PATCH } from "../../src/kube/resources.ts";
import { ensureBinaries } from "../control-plane/binaries.ts";
import { unlessAtLeast } from "../control-plane/features.ts";
import { assertUnfrozen } from "./assert-no-traces.ts";
import { Cluster } from "./cluster.ts";
import { TestKind, versionsOf } from "./crd-fixture.ts";
import { leaveFreeze } from "./left-behind.ts";
import { createInV1, dropOldVersions, IN_TREE, listProblem, loseObjects, pruneByHand, V1 } from "./lost-objects.ts";
import { rejectUpdatesOf } from "./reject-updates.ts";

const NO_IN_TREE = unlessAtLeast(37, "the in-tree migrator is on by default");
const cluster = await Cluster.start(t);
const { api } = cluster;
const FLAGS = ["--settle", "1s", "--convergence-timeout", "20s"] as const;

function repair(kind: TestKind, ...args: readonly string[]) {
  return cluster.ksvm(["doctor", kind.name, "--repair", ...FLAGS, ...args]);
}

async function versionNames(kind: TestKind): Promise<readonly string[]> {
  return (await cluster.crd(kind)).spec.versions.map(({ name }) => name);
}

async function assertRepaired(t: Test, kind: TestKind, count: number): Promise<void> {
  t.same(await cluster.storedAs(kind), { v1: count });
  t.same(await versionNames(kind), ["v1"]);
  t.same(storedVersionsOf(await cluster.crd(kind)), ["v1"]);
  t.equal(await listProblem(cluster, kind), "", "every object can be read");
  await assertUnfrozen(t, cluster, kind);
  t.match(await cluster.ksvm(["doctor", kind.name]), { code: 0 });
}

await t.test(
  "doctor --repair brings back objects that are unreadable, and a dry run of it changes nothing",
  async (t) => {
    const kind = new TestKind("lost");
    await loseObjects(cluster, kind, 5);
    const before = await cluster.crd(kind);
    const dryRun = await repair(kind);
    t.match(dryRun, {
      code: 5,
      stdout: /1\. add v1alpha1 back .*\n.*status\.storedVersions.*\n.*nothing was changed/s,
    });
    t.match(dryRun.stdout, /unreadable-objects +\S+ +v1alpha1 +unknown/);
    t.same(await cluster.crd(kind), before);
    t.same(await cluster.storedAs(kind), { v1: 1, v1alpha1: 5 });

    const { code, stderr, stdout } = await repair(kind, "--yes");
    t.equal(code, 0, stderr);
    t.match(
      stderr,
      /added v1alpha1 back.*added v1alpha1 to status.*6 objects can be listed.*removed v1alpha1 from spec/s,
    );
    t.match(stdout, /^nothing found: 1 CRD looked at\n$/);
    await assertRepaired(t, kind, 6);
  },
);

await t.test("doctor --repair goes on wherever it was interrupted", async (t) => {
  const kind = new TestKind("again");
  await loseObjects(cluster, kind, 3);
  const versions = [...(await cluster.crd(kind)).spec.versions, restoredVersion("v1alpha1")];
  await api.patch(CRDS, kind, { type: MERGE_PATCH, body: { spec: { versions } } });
  t.match(await cluster.ksvm(["doctor", kind.name]), { code: 5, stdout: /unfinished-repair/ }, "before storedVersions");
  const patch = { type: MERGE_PATCH, body: { status: { storedVersions: ["v1", "v1alpha1"] } } };
  await api.patch(CRDS, kind, patch, { subresource: "status" });
  await leaveFreeze(cluster, kind, `kube-system/ksvm-migrate.${kind.name}`);
  t.match(
    await cluster.ksvm(["doctor", kind.name]),
    { code: 5, stdout: /unfinished-repair.*stuck-freeze/s },
    "mid-run",
  );
  const { code, stderr } = await repair(kind, "--yes");
  t.equal(code, 0, stderr);
  await assertRepaired(t, kind, 4);

  const pruned = new TestKind("pruned");
  await cluster.createCrd(pruned, V1);
  await cluster.createObjects(pruned.resource("v1"), pruned.objects(2, "v1"));
  const left = [...(await cluster.crd(pruned)).spec.versions, restoredVersion("v1alpha1")];
  await api.patch(CRDS, pruned, { type: MERGE_PATCH, body: { spec: { versions: left } } });
  t.match(await repair(pruned, "--yes"), { code: 0 }, "after the prune, before the version is removed");
  await assertRepaired(t, pruned, 2);
});

await t.test("doctor --repair touches nothing that another client froze", async (t) => {
  const kind = new TestKind("foreign");
  await loseObjects(cluster, kind, 2);
  const annotations = { [MIGRATING_ANNOTATION]: "by hand" };
  await api.patch(CRDS, kind, { type: MERGE_PATCH, body: { metadata: { annotations } } }, { fieldManager: "me" });
  const before = await cluster.crd(kind);
  t.match(await repair(kind, "--yes"), { code: 5, stderr: /\[ForeignFreeze\]/ });
  t.same(await cluster.crd(kind), before);
  t.same(await cluster.storedAs(kind), { v1: 1, v1alpha1: 2 });
});

await t.test("doctor --repair prunes nothing while an object is rejected, and goes on afterwards", async (t) => {
  const kind = new TestKind("reject");
  await cluster.createStale(kind, 3);
  const lift = await rejectUpdatesOf(cluster, kind, "w1");
  await createInV1(cluster, kind);
  await pruneByHand(cluster, kind);
  await dropOldVersions(cluster, kind);
  t.match(await repair(kind, "--yes"), { code: 5 });
  t.same(await versionNames(kind), ["v1", "v1alpha1"]);
  t.same(storedVersionsOf(await cluster.crd(kind)), ["v1", "v1alpha1"], "the version cannot leave the CRD again");
  t.equal(await listProblem(cluster, kind), "", "the objects can be read");
  t.equal((await cluster.storedAs(kind))["v1alpha1"], 1);
  await lift();
  t.match(await repair(kind, "--yes"), { code: 0 });
  await assertRepaired(t, kind, 4);
});

await t.test("doctor --repair leaves a version that the CRD has by itself", async (t) => {
  const kind = new TestKind("vendor");
  await loseObjects(cluster, kind, 2);
  await api.patch(CRDS, kind, { type: MERGE_PATCH, body: { spec: { versions: versionsOf({ storage: "v1" }) } } });
  t.match(await repair(kind, "--yes"), { code: 0, stdout: /^nothing found/ });
  t.same(await versionNames(kind), ["v1alpha1", "v1"], "nothing is found there, and nothing is taken away");
});

await t.test("doctor --yes is for --repair", async (t) => {
  t.match(await cluster.ksvm(["doctor", "--yes"]), { code: 2, stderr: /\[Usage\]/ });
});

await t.test(
  "doctor --repair repairs what the real in-tree controller leaves behind after it failed",
  { skip: NO_IN_TREE },
  async (t) => {
    await ensureBinaries(["kube-controller-manager"]);
    const kind = new TestKind("intree");
    await cluster.createStale(kind, 3);
    const lift = await rejectUpdatesOf(cluster, kind, "w1");
    const manager = await startInTree(cluster);
    const { outcome } = await migrateInTree(cluster, kind, new AbortController().signal);
    await manager.stop();
    t.equal(outcome, "Failed");
    t.same(storedVersionsOf(await cluster.crd(kind)), ["v1"], "it pruned all the same");
    t.ok(((await cluster.storedAs(kind))["v1alpha1"] ?? 0) > 0, "and objects are stored in v1alpha1");
    t.match(await cluster.ksvm(["doctor", kind.name]), { code: 5, stdout: /unproven-prune/ });
    await lift();
    const { code, stderr } = await repair(kind, "--yes");
    t.equal(code, 0, stderr);
    t.match(stderr, /added v1alpha1 to status\.storedVersions.*deleted the failed migration/s);
    t.same(await cluster.storedAs(kind), { v1: 3 });
    t.same(storedVersionsOf(await cluster.crd(kind)), ["v1"]);
    t.same(await versionNames(kind), ["v1alpha1", "v1"], "the CRD's own version is for its author to remove");
    t.equal(await api.find(IN_TREE, { name: kind.plural }), undefined);
  },
);
