import t from "tap";
import { storageVersionOf, storedVersionsOf } from "../../src/api/crd.ts";
import { FREEZE_REASON, MIGRATING_ANNOTATION } from "../../src/api/names.ts";
import { CRDS, MERGE_PATCH, POLICIES, POLICY_BINDINGS } from "../../src/old/kube/resources.ts";
import { policyGuardOf } from "../../src/old/freeze/guard-install.ts";
import { assertNoTraces, assertUnfrozen } from "./assert-no-traces.ts";
import { Cluster, eventually } from "./cluster.ts";
import { TestKind, versionsOf } from "./crd-fixture.ts";
import { balanceRequests } from "./http-balancer.ts";
import { alone, parallel } from "./parallel.ts";
import { SLOW_RUN_OBJECTS, startSlowRun } from "./slow-run.ts";
import { installWebhook } from "./webhook-guard.ts";

const cluster = await Cluster.start(t);
const { api } = cluster;
const FLIP = { type: MERGE_PATCH, body: { spec: { versions: versionsOf({ storage: "v1alpha1" }) } } };
const LIFT = { type: MERGE_PATCH, body: { metadata: { annotations: { [MIGRATING_ANNOTATION]: null } } } };
const DENIED = { status: 403, message: new RegExp(FREEZE_REASON) };

for (const guard of ["policy", "webhook"] as const) {
  alone(`F12: a storage change during a run is denied by the ${guard}`, async (t) => {
    const webhook = guard === "webhook" ? await installWebhook(cluster) : undefined;
    const kind = new TestKind("flip");
    const run = await startSlowRun(cluster, kind);
    await t.rejects(api.patch(CRDS, kind, FLIP), DENIED);
    const flipAndLift = { type: MERGE_PATCH, body: { ...FLIP.body, ...LIFT.body } };
    await t.rejects(api.patch(CRDS, kind, flipAndLift), DENIED, "lifting the freeze in the same update does not help");

    const { code, stdout, stderr } = await run.ended;
    t.equal(code, 0, stderr);
    t.match(stdout, new RegExp(`guarded by ${guard}`));
    t.equal(storageVersionOf(await cluster.crd(kind)), "v1");
    t.same(await cluster.storedAs(kind), { v1: SLOW_RUN_OBJECTS });
    t.same(storedVersionsOf(await cluster.crd(kind)), ["v1"]);
    await assertNoTraces(t, cluster, kind);
    if (webhook !== undefined) {
      t.ok(webhook.denials() >= 4, "the webhook itself denied both proofs and both attempts");
      await webhook.uninstall();
    }
    await t.resolves(api.patch(CRDS, kind, FLIP), "negative control: after the run the same change is accepted");
  });
}

parallel("F13: a run prunes in spite of harmless edits of the CRD", async (t) => {
  const kind = new TestKind("edit");
  const run = await startSlowRun(cluster, kind);
  const before = await cluster.crd(kind);
  const described = versionsOf({ storage: "v1" }).map((version) => ({ ...version, deprecated: version.name !== "v1" }));
  await api.patch(CRDS, kind, { type: MERGE_PATCH, body: { spec: { versions: described } } });
  await api.patch(CRDS, kind, { type: MERGE_PATCH, body: { metadata: { labels: { edited: "yes" } } } });
  const { code, stderr } = await run.ended;
  t.equal(code, 0, stderr);
  const after = await cluster.crd(kind);
  t.ok((after.metadata.generation ?? 0) > (before.metadata.generation ?? 0), "the generation moved");
  t.same(storedVersionsOf(after), ["v1"]);
});

function shapeWith(properties: object): { readonly specSchema: object } {
  return { specSchema: { type: "object", properties } };
}

parallel("a run begins again where a schema gets a new field before its first list", async (t) => {
  const size = { type: "integer" };
  const wide = versionsOf({ ...shapeWith({ size, extra: size }), storage: "v1" });
  const described = versionsOf({ ...shapeWith({ size }), storage: "v1" }).map((version) => ({
    ...version,
    deprecated: version.name !== "v1",
  }));
  for (const [word, versions] of [
    ["early", wide],
    ["harmless", described],
  ] as const) {
    const kind = new TestKind(word);
    await cluster.createStale(kind, 5, shapeWith({ size }));
    let lists = 0;
    const instead = async (method: string, path: string): Promise<undefined> => {
      const isPage = method === "GET" && path.includes(`/${kind.plural}?`) && path.includes("limit=5");
      if (isPage && ++lists === 1) {
        await api.patch(CRDS, kind, { type: MERGE_PATCH, body: { spec: { versions } } });
      }
    };
    const kubeconfig = await balanceRequests(t, cluster.controlPlane, () => 0, { instead });
    const run = await cluster.migrate([kind.name, "--page-size=5", "--kubeconfig", kubeconfig]);
    t.equal(run.code, 0, run.stdout + run.stderr);
    const startsAgain = /starting again: .*its schema changed,.*: spec\.extra is new/;
    t.equal(startsAgain.test(run.stdout), word === "early", run.stdout);
    t.same(await cluster.storedAs(kind), { v1: 5 });
    t.same(storedVersionsOf(await cluster.crd(kind)), ["v1"]);
    await assertNoTraces(t, cluster, kind);
  }
});

parallel(
  "The in-tree controller, or another client that prunes during a run, does not stop it and is reported",
  async (t) => {
    const kind = new TestKind("pruned");
    const run = await startSlowRun(cluster, kind);
    // What the in-tree controller writes in the end; here too early, as it may do.
    const pruned = { type: MERGE_PATCH, body: { status: { storedVersions: ["v1"] } } };
    await api.patch(CRDS, kind, pruned, { subresource: "status" });
    const { code, stdout, stderr } = await run.ended;
    t.equal(code, 0, stderr);
    t.match(stdout, /warning: another client pruned storedVersions of .* while objects were being rewritten/);
    t.same(await cluster.storedAs(kind), { v1: SLOW_RUN_OBJECTS }, "every object is rewritten all the same");
    t.same(storedVersionsOf(await cluster.crd(kind)), ["v1"]);
    await assertNoTraces(t, cluster, kind);
  },
);

parallel(
  "A storage version that another client takes out of storedVersions during a run is listed again before more objects are written",
  async (t) => {
    const kind = new TestKind("unlisted");
    const run = await startSlowRun(cluster, kind);
    // As a client does that read the CRD before the storage version changed.
    const stale = { type: MERGE_PATCH, body: { status: { storedVersions: ["v1alpha1"] } } };
    await api.patch(CRDS, kind, stale, { subresource: "status" });
    await eventually(
      async () => storedVersionsOf(await cluster.crd(kind)).includes("v1"),
      "the storage version is listed again",
    );
    t.not((await cluster.storedAs(kind))["v1alpha1"], undefined, "objects are left to be written");
    const { code, stdout, stderr } = await run.ended;
    t.equal(code, 0, stderr);
    t.match(
      stdout,
      /another client set storedVersions of .* to \[v1alpha1\], without the storage version "v1"; it is listed again/,
    );
    t.same(await cluster.storedAs(kind), { v1: SLOW_RUN_OBJECTS });
    t.same(storedVersionsOf(await cluster.crd(kind)), ["v1"]);
    await assertNoTraces(t, cluster, kind);
  },
);

parallel(
  "Break-glass is final: a freeze lifted by another client ends the run without pruning, and is not put back",
  async (t) => {
    const kind = new TestKind("lift");
    const run = await startSlowRun(cluster, kind);
    await api.patch(CRDS, kind, LIFT);
    const { code, stderr } = await run.ended;
    t.equal(code, 1);
    t.match(stderr, /another client lifted the freeze.*\[FreezeLifted\]/);
    t.same(storedVersionsOf(await cluster.crd(kind)), ["v1alpha1", "v1"]);
    await assertUnfrozen(t, cluster, kind);
  },
);

parallel(
  "F12: a storage version that goes there and back with the guard removed ends the run without pruning",
  async (t) => {
    const kind = new TestKind("aba");
    const run = await startSlowRun(cluster, kind);
    await api.delete(POLICY_BINDINGS, policyGuardOf(kind.name));
    await api.delete(POLICIES, policyGuardOf(kind.name));
    await eventually(
      () =>
        api.patch(CRDS, kind, FLIP).then(
          () => true,
          () => false,
        ),
      "the guard is out of force",
    );
    await cluster.setVersions(kind, { storage: "v1" });
    const { code, stderr } = await run.ended;
    t.equal(code, 1);
    t.match(stderr, /the storage version changed.*\[StorageVersionChanged\]/);
    t.same(storedVersionsOf(await cluster.crd(kind)), ["v1alpha1", "v1"]);
    await assertUnfrozen(t, cluster, kind);
    t.equal((await cluster.migrate([kind.name])).code, 0, "running it again succeeds");
    t.same(await cluster.storedAs(kind), { v1: SLOW_RUN_OBJECTS });
  },
);

parallel("a CRD deleted and created again during a run is not pruned", async (t) => {
  const kind = new TestKind("again");
  const run = await startSlowRun(cluster, kind);
  await api.delete(CRDS, kind);
  await eventually(async () => (await api.find(CRDS, kind)) === undefined, "the CRD is gone");
  await cluster.createCrd(kind, { storage: "v1alpha1" });
  await cluster.setVersions(kind, { storage: "v1" });
  const { code, stderr } = await run.ended;
  t.equal(code, 1);
  t.match(stderr, /\[(CrdReplaced|VersionNotServed|FreezeLifted)\]/);
  t.same(storedVersionsOf(await cluster.crd(kind)), ["v1alpha1", "v1"]);
  await assertUnfrozen(t, cluster, kind);
});
