import t from "tap";
import { storedVersionsOf } from "../crd.ts";
import type { PartialObjectMetadata } from "../../src/api/meta.ts";
import { messageOf } from "../../src/errors.ts";
import { MERGE_PATCH, type ObjectRef } from "../api-client.ts";
import { isAtLeast, unlessAtLeast } from "../control-plane/features.ts";
import { assertNoTraces, assertUnfrozen } from "./assert-no-traces.ts";
import { Cluster, eventually } from "./cluster.ts";
import { TestKind } from "./crd-fixture.ts";
import { mutateUpdates } from "./mutate-updates.ts";
import { parallel } from "./parallel.ts";
import { rejectUpdatesOf } from "./reject-updates.ts";

const cluster = await Cluster.start(t);
const { api } = cluster;

/** The case in which the in-tree controller 1.36.3 prunes all the same, and the two old objects become unreadable. */
parallel(
  "F4, F6: migrate does not prune where an object was rejected, and a second run tries only what is left",
  async (t) => {
    const kind = new TestKind("reject");
    await cluster.createStale(kind, 10);
    const allow = await rejectUpdatesOf(cluster, kind, "w3");

    const tried = await cluster.migrate([kind.name, "--dry-run"]);
    t.equal(tried.code, 3);
    t.match(tried.stderr, /default\/w3: .*this one stays as it is/, "the dry-run names it beforehand");
    t.match(tried.stdout, /: dry run: 9 objects would be accepted, 1 rejected; nothing was changed\n$/);
    t.notMatch(tried.stdout, /rewritten|pruned/, "a dry-run claims nothing that it did not do");
    t.same(await cluster.storedAs(kind), { v1alpha1: 10 });

    const run = await cluster.migrate([kind.name]);
    t.equal(run.code, 3);
    t.match(run.stdout, /incomplete after .*: 9 rewritten, 1 failed; storedVersions is \[v1alpha1,v1\]/);
    t.match(run.stderr, /default\/w3: .*this one stays as it is/);
    t.same(await cluster.storedAs(kind), { v1alpha1: 1, v1: 9 });
    t.same(storedVersionsOf(await cluster.crd(kind)), ["v1alpha1", "v1"]);
    await assertUnfrozen(t, cluster, kind);

    await allow();
    await eventually(async () => (await cluster.migrate([kind.name, "--dry-run"])).code === 0, "the rule is gone");
    const again = await cluster.migrate([kind.name]);
    t.equal(again.code, 0, again.stderr);
    t.match(again.stdout, /: 1 rewritten, 9 written since the run began; storedVersions is \[v1\]/);
    t.same(await cluster.storedAs(kind), { v1: 10 });
    t.same(storedVersionsOf(await cluster.crd(kind)), ["v1"]);
    await assertNoTraces(t, cluster, kind);
  },
);

parallel("migrate goes on where an object is invalid by a schema that was tightened later", async (t) => {
  const kind = new TestKind("strict");
  await cluster.createStale(kind, 3);
  const size = { type: "integer", maximum: 1 };
  const specSchema = { type: "object", properties: { size }, required: ["owner"] };
  await cluster.setVersions(kind, { storage: "v1", specSchema });
  const touch = { type: MERGE_PATCH, body: { spec: { size: 3 } } };
  const ref = { name: "w0", namespace: "default" };
  const isHeld = (): Promise<boolean> =>
    api.patch(kind.resource("v1"), ref, touch, { dryRun: true }).then(
      () => false,
      (error: unknown) => /Invalid value/.test(messageOf(error)),
    );
  await eventually(isHeld, "a change is held to the schema");
  const run = await cluster.migrate([kind.name]);
  // The API server lets unchanged values pass (validation ratcheting, Kubernetes 1.30 and newer).
  t.equal(run.code, 0, run.stderr);
  t.same(await cluster.storedAs(kind), { v1: 3 });
});

parallel("an object whose field has another type by now is migrated as it is", async (t) => {
  const kind = new TestKind("typed");
  await cluster.createStale(kind, 3, { specSchema: sizeOf("integer") });
  await cluster.setVersions(kind, { storage: "v1", specSchema: sizeOf("string") });
  const resource = kind.resource("v1");
  const [broken, repaired] = ["w1", "w2"].map((name) => ({ name, namespace: "default" })) as [ObjectRef, ObjectRef];
  const repair = { type: MERGE_PATCH, body: { spec: { size: "large" } } };
  // Only the schema of now takes a string.
  await eventually(
    () =>
      api.patch(resource, broken, repair, { dryRun: true }).then(
        () => true,
        () => false,
      ),
    "the schema is in force",
  );
  for (const name of ["w0", "w2"]) await api.patch(resource, { ...repaired, name }, repair);
  const before = await api.get<PartialObjectMetadata>(resource, broken);
  t.ok((before.metadata.managedFields?.length ?? 0) > 0);

  const tried = await api.patch<PartialObjectMetadata>(
    resource,
    broken,
    { type: MERGE_PATCH, body: {} },
    { dryRun: true },
  );
  if (!isAtLeast(37)) {
    t.same(
      tried.metadata.managedFields ?? [],
      [],
      "negative control: a merge patch passes, and drops its managedFields",
    );
  }

  const run = await cluster.migrate([kind.name]);
  t.equal(run.code, 0, run.stderr);
  t.same(await cluster.storedAs(kind), { v1: 3 });
  t.same(storedVersionsOf(await cluster.crd(kind)), ["v1"]);
  const { metadata, ...rest } = await api.get<PartialObjectMetadata>(resource, broken);
  const { managedFields = [], resourceVersion } = metadata;
  const kept = isAtLeast(37) ? before.metadata.managedFields : managedFields;
  t.strictSame(
    { ...rest, metadata },
    { ...before, metadata: { ...before.metadata, managedFields: kept, resourceVersion } },
  );
  // An older API server empties managedFields that do not fit the schema, whoever writes the object.
  if (!isAtLeast(37)) t.match(run.stdout, "(1 of them changed beyond their encoding)");
});

parallel(
  "Objects that another owner's mutating admission changes during the rewrite are counted, and none other changes",
  async (t) => {
    const kind = new TestKind("mutated");
    await cluster.createStale(kind, 10);
    const read = async (name: string): Promise<Mutable> => {
      const { metadata, spec } = await api.get<Mutable>(kind.resource("v1"), { name, namespace: "default" });
      return { metadata: { generation: metadata.generation }, spec };
    };
    const names = kind.objects(10, "v1").map(({ metadata }) => metadata.name ?? "");
    const before = await Promise.all(names.map(read));
    await mutateUpdates(cluster, kind, ["w2", "w5"]);
    // The dry-run warns of it, and shows when the rule is in force.
    let tried: Reported | undefined;
    await eventually(async () => {
      const run = await cluster.migrate([kind.name, "--dry-run", "-o", "json"]);
      tried = JSON.parse(run.stdout.trim().split("\n").at(-1) ?? "") as Reported;
      // It may come into force in the middle of a run.
      return tried.counts.changed === 2;
    }, "the rule is in force");
    t.match(tried, { type: "result", outcome: "dry-run", counts: { done: 10, changed: 2 } });
    t.strictSame(await Promise.all(names.map(read)), before, "a dry-run changes nothing");

    const run = await cluster.migrate([kind.name]);
    t.equal(run.code, 0, run.stderr);
    t.match(run.stdout, /: 10 rewritten \(2 of them changed beyond their encoding\); storedVersions is \[v1\]/);
    t.same(await cluster.storedAs(kind), { v1: 10 });
    const expected = before.map(({ metadata, spec }, index) =>
      index === 2 || index === 5
        ? { metadata: { generation: metadata.generation + 1 }, spec: { ...spec, owner: "platform" } }
        : { metadata, spec },
    );
    t.strictSame(await Promise.all(names.map(read)), expected, "the generation moved exactly where admission wrote");
    await assertNoTraces(t, cluster, kind);
  },
  unlessAtLeast(36, "MutatingAdmissionPolicy v1"),
);

/** The schema of a `spec` whose `size` has this type. */
function sizeOf(type: string): object {
  return { type: "object", properties: { size: { type } } };
}

interface Mutable {
  readonly metadata: { readonly generation: number };
  readonly spec: Readonly<Record<string, unknown>>;
}

/** The last line of `ksvm migrate -o json`. */
interface Reported {
  readonly type: "result";
  readonly counts: { readonly changed: number };
}
