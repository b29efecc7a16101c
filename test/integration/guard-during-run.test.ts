import t from "tap";
import { storageVersionOf, storedVersionsOf } from "../crd.ts";
import { policyName } from "../../src/freeze/freeze.ts";
import { FREEZE_REASON, MIGRATING, policySpec } from "../../src/freeze/rule.ts";
import { CRDS, MERGE_PATCH, POLICIES, POLICY_BINDINGS } from "../api-client.ts";
import { assertNoTraces, assertUnfrozen } from "./assert-no-traces.ts";
import { Cluster, eventually } from "./cluster.ts";
import { TestKind, versionsOf } from "./crd-fixture.ts";
import { alone, parallel } from "./parallel.ts";
import { SLOW_RUN_OBJECTS, startSlowRun } from "./slow-run.ts";
import { installWebhook } from "./webhook-guard.ts";

const cluster = await Cluster.start(t);
const { api } = cluster;
const FLIP = { type: MERGE_PATCH, body: { spec: { versions: versionsOf({ storage: "v1alpha1" }) } } };
const LIFT = { type: MERGE_PATCH, body: { metadata: { annotations: { [MIGRATING]: null } } } };
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
      t.ok((await webhook.denials()) >= 3, "the webhook itself denied the proof and both attempts");
      await webhook.uninstall();
    }
    await t.resolves(api.patch(CRDS, kind, FLIP), "negative control: after the run the same change is accepted");
  });
}

alone("a policy that a dead run left is taken over, although the webhook is there by now", async (t) => {
  const webhook = await installWebhook(cluster);
  const kind = new TestKind("left");
  await cluster.createStale(kind, 3);
  const name = policyName(kind.name);
  const admission = { apiVersion: "admissionregistration.k8s.io/v1", metadata: { name } };
  await api.create(POLICIES, { ...admission, kind: "ValidatingAdmissionPolicy", spec: policySpec(kind.name) });
  const spec = { policyName: name, validationActions: ["Deny"] };
  await api.create(POLICY_BINDINGS, { ...admission, kind: "ValidatingAdmissionPolicyBinding", spec });
  const { code, stderr } = await cluster.migrate([kind.name]);
  t.equal(code, 0, stderr);
  t.same(await cluster.storedAs(kind), { v1: 3 });
  await assertNoTraces(t, cluster, kind);
  await webhook.uninstall();
});

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

parallel("The in-tree controller, or another client that prunes during a run, does not stop it", async (t) => {
  const kind = new TestKind("pruned");
  const run = await startSlowRun(cluster, kind);
  // What the in-tree controller writes in the end; here too early, as it may do.
  const pruned = { type: MERGE_PATCH, body: { status: { storedVersions: ["v1"] } } };
  await api.patch(CRDS, kind, pruned, { subresource: "status" });
  const { code, stderr } = await run.ended;
  t.equal(code, 0, stderr);
  t.same(await cluster.storedAs(kind), { v1: SLOW_RUN_OBJECTS }, "every object is rewritten all the same");
  t.same(storedVersionsOf(await cluster.crd(kind)), ["v1"]);
  await assertNoTraces(t, cluster, kind);
});

parallel(
  "A storage version that another client takes out of storedVersions during a run is listed again at its end",
  async (t) => {
    const kind = new TestKind("unlisted");
    const run = await startSlowRun(cluster, kind);
    // As a client does that read the CRD before the storage version changed.
    const stale = { type: MERGE_PATCH, body: { status: { storedVersions: ["v1alpha1"] } } };
    await api.patch(CRDS, kind, stale, { subresource: "status" });
    const { code, stderr } = await run.ended;
    t.equal(code, 0, stderr);
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
  "F12: a storage version that goes there and back with the guard removed has the run begin again",
  async (t) => {
    const kind = new TestKind("aba");
    const run = await startSlowRun(cluster, kind);
    const guard = { name: policyName(kind.name) };
    await api.delete(POLICY_BINDINGS, guard);
    await api.delete(POLICIES, guard);
    await eventually(
      () =>
        api.patch(CRDS, kind, FLIP).then(
          () => true,
          () => false,
        ),
      "the guard is out of force",
    );
    await cluster.setVersions(kind, { storage: "v1" });
    const { code, stderr, stdout } = await run.ended;
    t.equal(code, 0, stderr);
    t.match(stdout, /beginning again: .*the spec of the CRD changed/);
    t.same(await cluster.storedAs(kind), { v1: SLOW_RUN_OBJECTS });
    t.same(storedVersionsOf(await cluster.crd(kind)), ["v1"]);
    await assertNoTraces(t, cluster, kind);
  },
);

parallel("a CRD that is deleted and created again during a run is another one, with objects of its own", async (t) => {
  const kind = new TestKind("again");
  const run = await startSlowRun(cluster, kind);
  await api.delete(CRDS, kind);
  await eventually(async () => (await api.find(CRDS, kind)) === undefined, "the CRD is gone");
  await cluster.createStale(kind, 3);
  const { code, stdout, stderr } = await run.ended;
  // The run may end, or migrate the new CRD: to v1, or to v1alpha1 where it was done before the storage version changed.
  const [, version = "v1alpha1"] = /migrated in .*: .*; storedVersions is \[(.+)\]/.exec(stdout) ?? [];
  if (code !== 0) t.match(stderr, /\[(ResourceNotFound|ResourceNotMigratable|FreezeLifted)\]/);
  t.same(await cluster.storedAs(kind), { [version]: 3 });
  t.same(storedVersionsOf(await cluster.crd(kind)), version === "v1" ? ["v1"] : ["v1alpha1", "v1"]);
  await assertUnfrozen(t, cluster, kind);
});
