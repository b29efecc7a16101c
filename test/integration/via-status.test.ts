import t, { type Test } from "tap";
import { storedVersionsOf } from "../../src/api/crd.ts";
import { messageOf } from "../../src/errors.ts";
import { APPLY_PATCH, CRDS, MERGE_PATCH } from "../../src/old/kube/resources.ts";
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
const denyNegative: Tighten = (kind) =>
  rejectUpdates(cluster, kind, { expression: "object.spec.replicas >= 0", message: "replicas is negative" });

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

/** The normal way is refused, names what was rejected, and points to the other one. */
async function refusesTheNormalWay(t: Test, kind: TestKind, reason: RegExp): Promise<void> {
  const stored = await cluster.storedAs(kind);
  const normal = await cluster.migrate([kind.name]);
  t.equal(normal.code, 3, "negative control: the normal way");
  t.match(normal.stderr, reason);
  const advice = `; if it is about the spec, try ksvm migrate ${kind.name} --standalone --via=status`;
  t.ok(normal.stderr.includes(advice), normal.stderr);
  t.same(await cluster.storedAs(kind), stored);
  t.same(storedVersionsOf(await cluster.crd(kind)), ["v1alpha1", "v1"]);
}

const PASSING: readonly (readonly [string, Tighten, RegExp])[] = [
  ["the schema of a scale subresource that came later", addScale, /spec\.replicas: Invalid value: -1/],
  ["the schema of an embedded resource that came later", embedResource, /spec\.template\.kind: Required value/],
  ["an admission policy on the resource", denyNegative, /replicas is negative/],
];

for (const [words, tighten, reason] of PASSING) {
  parallel(`--via=status migrates objects that ${words} rejects, and changes nothing of them`, async (t) => {
    const kind = new TestKind("via");
    await createStale(kind);
    await tighten(kind);
    await untilRejected(kind);
    await refusesTheNormalWay(t, kind, reason);
    const before = await everyObject(kind);

    const tried = await cluster.migrate([kind.name, "--via=status", "--dry-run"]);
    t.match(tried, { code: 0, stdout: /dry run: 5 objects would be accepted; nothing was changed/ });
    t.strictSame(await everyObject(kind), before, "a dry run changes nothing");

    const run = await cluster.migrate([kind.name, "--via=status"]);
    t.equal(run.code, 0, run.stdout + run.stderr);
    t.match(run.stdout, /: 5 rewritten; storedVersions is \[v1\]/);
    t.same(await cluster.storedAs(kind), { v1: COUNT + 1 });
    t.same(storedVersionsOf(await cluster.crd(kind)), ["v1"]);
    const after = await everyObject(kind);
    t.strictSame(after.map(asTheUserSees), before.map(asTheUserSees));
    await assertNoTraces(t, cluster, kind);
    await untilRejected(kind);
  });
}

parallel("--via=status does not prune where admission rejects status updates, too", async (t) => {
  const kind = new TestKind("both");
  await createStale(kind);
  const message = "none of it is updated";
  const resources = [kind.plural, `${kind.plural}/status`];
  await rejectUpdates(cluster, kind, { expression: "object.spec.replicas >= 0", message }, resources);
  await untilRejected(kind);
  const run = await cluster.migrate([kind.name, "--via=status"]);
  t.equal(run.code, 3);
  t.match(run.stderr, /default\/w0: .*none of it is updated\n/, "it points to no other way");
  t.same(await cluster.storedAs(kind), { v1alpha1: COUNT + 1 });
  t.same(storedVersionsOf(await cluster.crd(kind)), ["v1alpha1", "v1"]);
  await assertUnfrozen(t, cluster, kind);
});

parallel("--via=status is refused where there is no status subresource, and nothing is changed", async (t) => {
  const kind = new TestKind("none");
  await cluster.createStale(kind, 2);
  const before = await cluster.crd(kind);
  for (const more of [[], ["--dry-run"]]) {
    const run = await cluster.migrate([kind.name, "--via=status", ...more]);
    t.equal(run.code, 1);
    t.match(run.stderr, /^error: .*version "v1" of the CRD has no status subresource.*\n$/);
  }
  t.strictSame(await cluster.crd(kind), before);
  t.same(await cluster.storedAs(kind), { v1alpha1: 2 });
  const builtIn = await cluster.migrate(["configmaps", "--via=status"]);
  t.match(builtIn, {
    code: 1,
    stderr: /"configmaps" with --via=status: it is no custom resource; nothing was changed/,
  });
});
