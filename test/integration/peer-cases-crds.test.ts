import t from "tap";
import { storedVersionsOf } from "../../src/api/crd.ts";
import type { PartialObjectMetadata } from "../../src/api/meta.ts";
import { messageOf } from "../../src/errors.ts";
import { APPLY_PATCH, CRDS } from "../../src/kube/resources.ts";
import { assertNoTraces, assertUnfrozen } from "./assert-no-traces.ts";
import { Cluster, eventually } from "./cluster.ts";
import { fileOf } from "./crd-file.ts";
import { type CrdShape, GROUP, TestKind } from "./crd-fixture.ts";
import { V1 } from "./lost-objects.ts";
import { objectWebhook } from "./object-webhook.ts";
import { rejectUpdates, rejectUpdatesOf } from "./reject-updates.ts";
import { assertKept, assertLostOncePruned, assertMigrated, runCases } from "./run-peer-cases.ts";
import { conversionBy, serveConversion } from "./serve-webhook.ts";
import { SLOW_RUN_OBJECTS, startSlowRun } from "./slow-run.ts";

const NOBODY = "reads-nothing";
const cluster = await Cluster.start(t, { users: [{ name: NOBODY }] });
const { api } = cluster;

async function staleKind(word: string, count: number, shape: Partial<CrdShape> = {}): Promise<TestKind> {
  const kind = new TestKind(word);
  await cluster.createStale(kind, count, shape);
  return kind;
}

/** The CRD of Cluster API's test, in the versions of this project's kinds: t1 has v1alpha1 alone, t4 v1 alone. */
const [T1, T2, T3, T4]: readonly [CrdShape, CrdShape, CrdShape, CrdShape] = [
  { versions: ["v1alpha1"], storage: "v1alpha1", statusSubresource: true },
  { storage: "v1", statusSubresource: true },
  { storage: "v1", unserved: ["v1alpha1"], statusSubresource: true },
  { versions: ["v1"], storage: "v1", statusSubresource: true },
];

/** Applies a spec as a client does. @param versionAndName `v1/NAME` */
function applyAs(
  kind: TestKind,
  versionAndName: string,
  spec: object,
  options: { readonly fieldManager?: string; readonly dryRun?: boolean } = {},
): Promise<unknown> {
  const [version = "", name = ""] = versionAndName.split("/");
  const metadata = { name, namespace: "default" };
  const body = { apiVersion: `${GROUP}/${version}`, kind: kind.kind, metadata, spec };
  return api.patch(
    kind.resource(version),
    metadata,
    { type: APPLY_PATCH, body },
    { fieldManager: "applier", ...options },
  );
}

function namedVersions({ metadata }: PartialObjectMetadata): readonly string[] {
  return (metadata.managedFields ?? []).map(({ apiVersion = "" }) => apiVersion.slice(GROUP.length + 1)).toSorted();
}

/** The versions that the managedFields of each object name. */
async function fieldVersions(kind: TestKind): Promise<Record<string, readonly string[]>> {
  const { items } = await api.listMetadata(kind.resource("v1"));
  return Object.fromEntries(items.map((item) => [item.metadata.name, namedVersions(item)]));
}

/** t1 and t2: objects with managedFields of the old version, of both, and of the new one. */
async function throughT2(word: string): Promise<TestKind> {
  const kind = new TestKind(word);
  await cluster.createCrd(kind, T1);
  for (const name of ["one", "two"]) await applyAs(kind, `v1alpha1/${name}`, { foo: "a" });
  await cluster.setVersions(kind, T2);
  await cluster.waitForVersion(kind, "v1");
  t.same(storedVersionsOf(await cluster.crd(kind)), ["v1alpha1", "v1"]);
  await applyAs(kind, "v1/two", { bar: "b" }, { fieldManager: "other-applier" });
  await applyAs(kind, "v1/three", { foo: "a" });
  return kind;
}

/** t3 and t4. */
async function throughT4(kind: TestKind): Promise<void> {
  await cluster.setVersions(kind, T3);
  await cluster.waitForVersion(kind, "v1alpha1", false);
  await cluster.setVersions(kind, T4);
}

const NAMES = ["one", "two", "three"];

// controllers/crdmigrator/crd_migrator_test.go of https://github.com/kubernetes-sigs/cluster-api at v1.14.0
runCases("Cluster API's crdmigrator", {
  "the whole life of a version": async (t) => {
    const kind = await throughT2("life");
    t.same(await fieldVersions(kind), { one: ["v1alpha1"], two: ["v1", "v1alpha1"], three: ["v1"] });
    const run = await cluster.migrate([kind.name]);
    t.equal(run.code, 0, run.stderr);
    await assertMigrated(t, cluster, kind, 3);
    await assertNoTraces(t, cluster, kind);
    const converted = { one: ["v1"], two: ["v1", "v1"], three: ["v1"] };
    t.same(await fieldVersions(kind), converted, "no entry is removed");
    await throughT4(kind);
    for (const name of NAMES) await applyAs(kind, `v1/${name}`, { foo: "new" });
    t.same(await fieldVersions(kind), converted);
    await assertMigrated(t, cluster, kind, 3);
  },
  "objects are patched by their status": async (t) => {
    const kind = await staleKind("status", 2, { statusSubresource: true });
    const allow = await rejectUpdatesOf(cluster, kind, "w1");
    t.equal((await cluster.migrate([kind.name])).code, 3);
    t.same(await cluster.storedAs(kind), { v1alpha1: 1, v1: 1 });
    t.match(await cluster.migrate([kind.name, "--via=status", "--managed-fields=convert"]), { code: 2 });
    const run = await cluster.migrate([kind.name, "--via=status"]);
    t.equal(run.code, 0, run.stderr);
    await assertMigrated(t, cluster, kind, 2);
    await allow();
  },
  "the storage migration is left out": async (t) => {
    const kind = await throughT2("skipped");
    const path = fileOf(t, kind.manifest(T4));
    t.match(await cluster.ksvm(["check", "-f", path]), { code: 4 });
    await t.rejects(throughT4(kind), /status\.storedVersions\[0\].*v1alpha1/);
    t.same(storedVersionsOf(await cluster.crd(kind)), ["v1alpha1", "v1"]);
  },
  "managedFields are left as they are": async (t) => {
    const kind = await throughT2("kept");
    const before = await fieldVersions(kind);
    t.equal((await cluster.migrate([kind.name, "--managed-fields=keep"])).code, 0);
    t.same(await fieldVersions(kind), before);
    await throughT4(kind);
    const gone = /request to convert CR to an invalid group\/version: example\.com\/v1alpha1/;
    await eventually(
      async () => gone.test(await applyAs(kind, "v1/one", { foo: "new" }, { dryRun: true }).then(() => "", messageOf)),
      "the API server knows that v1alpha1 is gone",
    );
    const outcomes = await Promise.all(
      NAMES.map((name) => applyAs(kind, `v1/${name}`, { foo: "new" }).then(() => "", messageOf)),
    );
    t.match(outcomes, [gone, gone, /^$/]);
    await assertMigrated(t, cluster, kind, 3);
  },
  "everything is left out": async (t) => {
    const kind = await throughT2("dry");
    const seen = async () => [
      await cluster.storedAs(kind),
      await cluster.crd(kind),
      await api.listMetadata(kind.resource("v1")).then(({ items }) => items),
    ];
    const before = await seen();
    t.equal((await cluster.migrate([kind.name, "--dry-run"])).code, 0);
    t.same(await seen(), before);
    await assertNoTraces(t, cluster, kind);
  },
});

// apiextensions/storageversion/migrator_test.go of https://github.com/knative/pkg at release-1.23
runCases("Knative's migrator", {
  "two objects are migrated": async (t) => {
    const kind = await staleKind("both", 2);
    const run = await cluster.migrate([kind.name]);
    t.equal(run.code, 0, run.stderr);
    await assertMigrated(t, cluster, kind, 2);
    await assertNoTraces(t, cluster, kind);
  },
  "one stored version": async (t) => {
    const kind = new TestKind("single");
    await cluster.createCrd(kind, V1);
    await cluster.createObjects(kind.resource("v1"), kind.objects(2, "v1"));
    const seen = async () => [await cluster.crd(kind), (await api.listMetadata(kind.resource("v1"))).items];
    const before = await seen();
    t.equal((await cluster.migrate([kind.name])).code, 0);
    t.same(await seen(), before);
  },
  "the CRD cannot be read": async (t) => {
    const kind = await staleKind("unread", 2);
    const kubeconfig = cluster.controlPlane.kubeconfigFor(NOBODY);
    const run = await cluster.migrate([kind.name, "--kubeconfig", kubeconfig]);
    t.equal(run.code, 1, run.stdout);
    t.match(run.stderr, /customresourcedefinitions/);
    t.same(await cluster.storedAs(kind), { v1alpha1: 2 });
    await assertKept(t, cluster, kind);
  },
  "the objects cannot be listed": async (t) => {
    let isBroken = true;
    const webhook = await serveConversion(t, (name) => isBroken && name === "w1");
    const kind = await staleKind("unlisted", 2, { conversion: conversionBy(webhook) });
    // So that no list in the other version has the names.
    await cluster.setVersions(kind, { storage: "v1", unserved: ["v1alpha1"] });
    await cluster.waitForVersion(kind, "v1alpha1", false);
    const run = await cluster.migrate([kind.name, "--max-freeze-idle", "2s", "--max-idle", "6s"]);
    t.equal(run.code, 1, run.stdout);
    t.match(run.stderr, /w1 cannot be converted/);
    t.same(await cluster.storedAs(kind), { v1alpha1: 2 });
    t.same(storedVersionsOf(await cluster.crd(kind)), ["v1alpha1", "v1"]);
    await assertUnfrozen(t, cluster, kind);
    isBroken = false;
    t.equal((await cluster.migrate([kind.name])).code, 0);
    await assertMigrated(t, cluster, kind, 2);
  },
  "an object cannot be patched": async (t) => {
    const kind = await staleKind("refused", 3);
    const allow = await rejectUpdatesOf(cluster, kind, "w0");
    const run = await cluster.migrate([kind.name]);
    t.match(run, { code: 3, stderr: /default\/w0: .*this one stays as it is/ });
    t.same(await cluster.storedAs(kind), { v1alpha1: 1, v1: 2 });
    await assertKept(t, cluster, kind);
    await allow();
    await assertLostOncePruned(t, cluster, kind);
  },
  "the CRD cannot be patched": async (t) => {
    const kind = await staleKind("unpruned", 2);
    const expression = `object.metadata.name != "${kind.name}" || object.status.storedVersions == oldObject.status.storedVersions`;
    const rule = { apiGroups: ["apiextensions.k8s.io"], resources: ["customresourcedefinitions/status"] };
    const allow = await rejectUpdates(cluster, kind, { expression, message: "storedVersions stays" }, rule);
    const prune = { type: "application/merge-patch+json", body: { status: { storedVersions: ["v1"] } } };
    const isInForce = (): Promise<boolean> =>
      api.patch(CRDS, kind, prune, { subresource: "status", dryRun: true }).then(
        () => false,
        () => true,
      );
    await eventually(isInForce, "the rule is in force");
    const run = await cluster.migrate([kind.name]);
    t.match(run, { code: 1, stderr: /storedVersions stays/ });
    t.same(await cluster.storedAs(kind), { v1: 2 });
    t.same(storedVersionsOf(await cluster.crd(kind)), ["v1alpha1", "v1"]);
    await assertUnfrozen(t, cluster, kind);
    await allow();
    const isAllowed = async (): Promise<boolean> => !(await isInForce());
    await eventually(isAllowed, "the rule is gone");
    t.equal((await cluster.migrate([kind.name])).code, 0);
    await assertMigrated(t, cluster, kind, 2);
  },
  "an object is not found": async (t) => {
    const kind = await staleKind("missing", 3);
    const status = { code: 404, reason: "NotFound", message: `${kind.plural} "w1" not found` };
    const decide = (name: string) => (name === "w1" ? { allowed: false, status } : { allowed: true });
    await objectWebhook(t, cluster, kind, { decide });
    const run = await cluster.migrate([kind.name]);
    t.match(run, { code: 3, stderr: /default\/w1: admission webhook/ });
    t.same(await cluster.storedAs(kind), { v1alpha1: 1, v1: 2 });
    await assertKept(t, cluster, kind);
    await assertLostOncePruned(t, cluster, kind);

    const deleted = new TestKind("deleted");
    const { ended } = await startSlowRun(cluster, deleted);
    await api.delete(deleted.resource("v1"), { name: `w${SLOW_RUN_OBJECTS - 1}`, namespace: "default" });
    const { code, stderr } = await ended;
    t.equal(code, 0, stderr);
    await assertMigrated(t, cluster, deleted, SLOW_RUN_OBJECTS - 1);
  },
});
