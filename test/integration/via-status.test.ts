// Objects that their own schema rejects by now: a write of their status leaves the spec as it is.
import t from "tap";
import { storedVersionsOf } from "../crd.ts";
import { messageOf } from "../../src/errors.ts";
import { APPLY_PATCH, CRDS, MERGE_PATCH } from "../api-client.ts";
import { asTheUserSees, type WholeObject } from "./as-user-sees.ts";
import { assertNoTraces, assertUnfrozen } from "./assert-no-traces.ts";
import { Cluster, eventually } from "./cluster.ts";
import { TestKind, versionsOf } from "./crd-fixture.ts";
import { parallel } from "./parallel.ts";
import { rejectUpdates } from "./reject-updates.ts";

const cluster = await Cluster.start(t);
const { api } = cluster;

const SHAPE = { storage: "v1", statusSubresource: true };
const COUNT = 4;
const FIRST = { name: "w0", namespace: "default" };

/** Objects stored as v1alpha1, one of them with whatever a rewrite must leave as it is. */
async function createStale(kind: TestKind): Promise<void> {
  await cluster.createCrd(kind, { ...SHAPE, storage: "v1alpha1" });
  const resource = kind.resource("v1alpha1");
  const spec = { replicas: -1, template: { a: 1 }, size: 3 };
  await cluster.createObjects(
    resource,
    kind.objects(COUNT, "v1alpha1").map((object) => ({ ...object, spec })),
  );
  const ref = { name: "rich", namespace: "default" };
  const { apiVersion, kind: kindName } = kind.object("rich", "v1alpha1");
  const metadata = { ...ref, labels: { a: "b" }, finalizers: ["example.com/keep"] };
  const applied = { type: APPLY_PATCH, body: { apiVersion, kind: kindName, metadata, spec } };
  await api.patch(resource, ref, applied, { fieldManager: "applier" });
  const status = { type: APPLY_PATCH, body: { apiVersion, kind: kindName, metadata: ref, status: { ready: true } } };
  await api.patch(resource, ref, status, { fieldManager: "operator", subresource: "status" });
  await cluster.setVersions(kind, SHAPE);
}

async function setVersions({ name }: TestKind, versions: readonly object[]): Promise<void> {
  await api.patch(CRDS, { name }, { type: MERGE_PATCH, body: { spec: { versions } } });
}

function specSchemaOf(properties: object): object {
  return { type: "object", "x-kubernetes-preserve-unknown-fields": true, properties };
}

/** Makes a rule that an object which does not change is held to as well, in whatever way. */
type Tighten = (kind: TestKind) => Promise<unknown>;

const addScale: Tighten = (kind) => {
  const scale = { specReplicasPath: ".spec.replicas", statusReplicasPath: ".status.replicas" };
  return setVersions(
    kind,
    versionsOf(SHAPE).map((version) => ({ ...version, subresources: { status: {}, scale } })),
  );
};
const embedResource: Tighten = (kind) => {
  const template = {
    type: "object",
    "x-kubernetes-embedded-resource": true,
    "x-kubernetes-preserve-unknown-fields": true,
  };
  return setVersions(kind, versionsOf({ ...SHAPE, specSchema: specSchemaOf({ template }) }));
};

/** Waits until an update of an object that changes nothing is rejected, and says how. */
async function untilRejected(kind: TestKind): Promise<void> {
  const touch = { type: MERGE_PATCH, body: { metadata: { labels: { touched: "yes" } } } };
  await eventually(
    () =>
      api.patch(kind.resource("v1"), FIRST, touch, { dryRun: true }).then(
        () => false,
        (error: unknown) => /invalid|denied/i.test(messageOf(error)),
      ),
    "the rule is in force",
  );
}

async function everyObject(kind: TestKind): Promise<readonly WholeObject[]> {
  return api.list<WholeObject>(kind.resource("v1"), {});
}

const TIGHTENED: readonly (readonly [string, Tighten])[] = [
  ["the schema of a scale subresource that came later", addScale],
  ["the schema of an embedded resource that came later", embedResource],
];

for (const [words, tighten] of TIGHTENED) {
  parallel(`objects that ${words} rejects are written through their status, and nothing of them changes`, async (t) => {
    const kind = new TestKind("via");
    await createStale(kind);
    await tighten(kind);
    await untilRejected(kind);
    const before = await everyObject(kind);

    const tried = await cluster.migrate([kind.name, "--dry-run"]);
    t.match(tried, { code: 0, stdout: /dry run: 5 objects would be accepted; nothing was changed/ });
    t.strictSame(await everyObject(kind), before, "a dry run changes nothing");

    const run = await cluster.migrate([kind.name]);
    t.equal(run.code, 0, run.stdout + run.stderr);
    t.match(run.stdout, /: 5 rewritten; storedVersions is \[v1\]/);
    t.match(run.stdout, /managedFields still name v1alpha1 \(5 objects\)/, "a write of the status leaves them");
    t.same(await cluster.storedAs(kind), { v1: COUNT + 1 });
    t.same(storedVersionsOf(await cluster.crd(kind)), ["v1"]);
    const after = await everyObject(kind);
    t.strictSame(after.map(asTheUserSees), before.map(asTheUserSees));
    await assertNoTraces(t, cluster, kind);
    await untilRejected(kind);
  });
}

parallel("what an admission policy denies is not written through the status, and nothing is pruned", async (t) => {
  const kind = new TestKind("denied");
  await createStale(kind);
  await rejectUpdates(cluster, kind, { expression: "object.spec.replicas >= 0", message: "replicas is negative" });
  await untilRejected(kind);
  const before = await everyObject(kind);
  const run = await cluster.migrate([kind.name]);
  t.equal(run.code, 3);
  t.match(run.stderr, /default\/w0: .*replicas is negative/);
  t.same(await cluster.storedAs(kind), { v1alpha1: COUNT + 1 });
  t.same(storedVersionsOf(await cluster.crd(kind)), ["v1alpha1", "v1"]);
  t.strictSame(await everyObject(kind), before);
  await assertUnfrozen(t, cluster, kind);
});
