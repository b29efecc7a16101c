import t from "tap";
import { storedVersionsOf } from "../crd.ts";
import { ApiError } from "../../src/kube/errors.ts";
import { CRDS, MERGE_PATCH } from "../api-client.ts";
import { assertNoTraces } from "./assert-no-traces.ts";
import { Cluster, eventually } from "./cluster.ts";
import { TestKind, versionsOf } from "./crd-fixture.ts";
import { alone, parallel } from "./parallel.ts";

const V1_ALONE = { type: MERGE_PATCH, body: { spec: { versions: versionsOf({ storage: "v1", versions: ["v1"] }) } } };

const cluster = await Cluster.start(t);
const { api } = cluster;

parallel("migrate takes a CRD through its life, T1 to T4", async (t) => {
  const kind = new TestKind("life");
  // T1: v1alpha1 is stored. T2: v1 is the storage version, the objects are as they were.
  await cluster.createStale(kind, 120);
  t.same(storedVersionsOf(await cluster.crd(kind)), ["v1alpha1", "v1"]);
  t.same(await cluster.storedAs(kind), { v1alpha1: 120 });

  await t.rejects(
    api.patch(CRDS, kind, V1_ALONE),
    { status: 422, message: /v1alpha1/ },
    "negative control: the API server refuses to drop v1alpha1 before the migration",
  );

  // T3: the migration.
  const run = await cluster.migrate([kind.name]);
  t.equal(run.code, 0, run.stderr);
  t.match(run.stdout, /migrated in .*: 120 rewritten; storedVersions is \[v1\]/);
  t.same(storedVersionsOf(await cluster.crd(kind)), ["v1"]);
  t.same(await cluster.storedAs(kind), { v1: 120 });
  await assertNoTraces(t, cluster, kind);

  const again = await cluster.migrate([kind.name]);
  t.equal(again.code, 0, "a second run is a no-op");
  t.match(again.stdout, /nothing to do/);

  // T4: v1alpha1 leaves the CRD, and every object can still be read.
  await api.patch(CRDS, kind, V1_ALONE);
  await cluster.waitForVersion(kind, "v1alpha1", false);
  await eventually(
    async () => (await api.listMetadata(kind.resource("v1")).catch(() => undefined))?.items.length === 120,
    "all objects can be listed in v1",
  );
});

parallel("F5: pruning by hand without a migration makes objects unreadable: what all this is for", async () => {
  const kind = new TestKind("lost");
  await cluster.createStale(kind, 1);
  const pruned = { type: MERGE_PATCH, body: { status: { storedVersions: ["v1"] } } };
  await api.patch(CRDS, kind, pruned, { subresource: "status" });
  await api.patch(CRDS, kind, V1_ALONE);
  const isLost = async (): Promise<boolean> =>
    api.get(kind.resource("v1"), { name: "w0", namespace: "default" }).then(
      () => false,
      (error: unknown) => error instanceof ApiError && error.status === 500,
    );
  await eventually(isLost, "the object cannot be read any more");
});

for (const scope of ["Namespaced", "Cluster"] as const) {
  parallel(`migrate leaves a ${scope} object as the user sees it, but for its resourceVersion`, async (t) => {
    const kind = new TestKind("whole");
    const shape = { scope, statusSubresource: true };
    const ref = scope === "Cluster" ? { name: "full" } : { name: "full", namespace: "default" };
    await cluster.createCrd(kind, { ...shape, storage: "v1alpha1" });
    const resource = kind.resource("v1alpha1");
    const marks = { labels: { tier: "gold" }, annotations: { note: "keep me" }, finalizers: ["example.com/hold"] };
    const object = { ...kind.object("full", "v1alpha1"), metadata: { ...ref, ...marks } };
    await api.create(resource, { ...object, spec: { size: 3, nested: { a: [1, 2, { b: "" }] } } });
    const status = { type: MERGE_PATCH, body: { status: { phase: "Ready", conditions: [{ type: "A" }] } } };
    await api.patch(resource, ref, status, { subresource: "status", fieldManager: "controller" });
    const applied = { ...object, metadata: ref, spec: { replicas: 2 } };
    const apply = { type: "application/apply-patch+yaml", body: applied };
    await api.patch(resource, ref, apply, { fieldManager: "applier", force: true });
    // Deleted, and held by its finalizer: it must be migrated like any other.
    await api.delete(resource, ref);
    await cluster.setVersions(kind, { ...shape, storage: "v1" });
    t.same(await cluster.storedAs(kind), { v1alpha1: 1 });

    await cluster.waitForVersion(kind, "v1");
    const before = await api.get<WholeObject>(kind.resource("v1"), ref);
    const run = await cluster.migrate([kind.name]);
    t.equal(run.code, 0, run.stderr);
    const after = await api.get<WholeObject>(kind.resource("v1"), ref);

    t.ok(before.metadata.deletionTimestamp);
    t.ok(before.metadata.managedFields.length >= 3);
    const { resourceVersion } = before.metadata;
    t.not(resourceVersion, after.metadata.resourceVersion);
    const managedFields = before.metadata.managedFields.map((entry) => ({ ...entry, apiVersion: "example.com/v1" }));
    t.strictSame(
      { ...after, metadata: { ...after.metadata, resourceVersion } },
      { ...before, metadata: { ...before.metadata, managedFields } },
    );
    t.same(await cluster.storedAs(kind), { v1: 1 });
    t.same(storedVersionsOf(await cluster.crd(kind)), ["v1"]);
    await assertNoTraces(t, cluster, kind);
  });
}

parallel("migrate prunes a CRD without objects", async (t) => {
  const kind = new TestKind("empty");
  await cluster.createStale(kind, 0);
  const run = await cluster.migrate([kind.name]);
  t.equal(run.code, 0, run.stderr);
  t.match(run.stdout, /no objects/);
  t.same(storedVersionsOf(await cluster.crd(kind)), ["v1"]);
  await assertNoTraces(t, cluster, kind);
});

parallel("migrate goes through another served version where the storage version is not served", async (t) => {
  const kind = new TestKind("hidden");
  await cluster.createStale(kind, 5);
  await cluster.setVersions(kind, { storage: "v1", unserved: ["v1"] });
  const run = await cluster.migrate([kind.name]);
  t.equal(run.code, 0, run.stderr);
  t.same(await cluster.storedAs(kind), { v1: 5 });
  t.same(storedVersionsOf(await cluster.crd(kind)), ["v1"]);
});

parallel("migrate refuses a CRD that serves no version", async (t) => {
  const kind = new TestKind("none");
  await cluster.createStale(kind, 1);
  await cluster.setVersions(kind, { storage: "v1", unserved: ["v1", "v1alpha1"] });
  const run = await cluster.migrate([kind.name]);
  t.equal(run.code, 1);
  t.match(run.stderr, /serves no version/);
  t.same(storedVersionsOf(await cluster.crd(kind)), ["v1alpha1", "v1"]);
  await assertNoTraces(t, cluster, kind);
});

parallel(
  "Clean is success: nothing to do for a CRD with one version, and --force rewrites it all the same",
  async (t) => {
    const kind = new TestKind("single");
    await cluster.createCrd(kind, { storage: "v1", versions: ["v1"] });
    await cluster.createObjects(kind.resource("v1"), kind.objects(7, "v1"));
    const run = await cluster.migrate([kind.name]);
    t.equal(run.code, 0);
    t.match(run.stdout, /nothing to do/);
    const forced = await cluster.migrate([kind.name, "--force"]);
    t.equal(forced.code, 0, forced.stderr);
    t.match(forced.stdout, /7 already up to date; storedVersions is \[v1\]/);
    await assertNoTraces(t, cluster, kind);
  },
);

parallel("migrate --dry-run tries every object and changes nothing", async (t) => {
  const kind = new TestKind("tried");
  await cluster.createStale(kind, 4);
  const before = await cluster.crd(kind);
  const run = await cluster.migrate([kind.name, "--dry-run"]);
  t.equal(run.code, 0, run.stderr);
  t.match(run.stdout, /dry run: 4 objects would be accepted; nothing was changed/);
  t.same(await cluster.storedAs(kind), { v1alpha1: 4 });
  t.equal((await cluster.crd(kind)).metadata.resourceVersion, before.metadata.resourceVersion);
  await assertNoTraces(t, cluster, kind);
});

parallel("several CRDs share one wait, and each ends by itself with its own line", async (t) => {
  const [kind, other, refused] = [new TestKind("shared"), new TestKind("shared"), new TestKind("shared")];
  await Promise.all([kind, other, refused].map((one) => cluster.createStale(one, 3)));
  await cluster.setVersions(refused, { storage: "v1", unserved: ["v1", "v1alpha1"] });
  const names = [kind, refused, other].map(({ name }) => name);
  const { code, stderr, stdout } = await cluster.ksvm(["migrate", ...names, "--unsafe-settle", "3s"]);
  t.equal(code, 1, "the worst of all");
  t.match(stderr, /^warning: --unsafe-settle 3s is shorter than 90s: data is lost/m);
  t.match(stderr, new RegExp(`^error: Cannot migrate "${refused.name}": it serves no version`, "m"));
  t.equal(stdout.match(/: waiting 3s: /g)?.length, 1, "one wait");
  for (const { name } of [kind, other]) t.match(stdout, new RegExp(`^${name}: migrated in .*: 3 rewritten; `, "m"));
  t.match(stdout, new RegExp(`^3 resources: 2 done, 1 failed \\(${refused.name}\\)$`, "m"));
  for (const one of [kind, other]) {
    t.same(await cluster.storedAs(one), { v1: 3 });
    await assertNoTraces(t, cluster, one);
  }
  t.same(await cluster.storedAs(refused), { v1alpha1: 3 });
});

alone("Clean is success: --all finds the CRDs whose storedVersions is not the storage version", async (t) => {
  const [stale, clean] = [new TestKind("stale"), new TestKind("clean")];
  await cluster.createStale(stale, 1);
  await cluster.createCrd(clean, { storage: "v1" });
  const run = await cluster.migrate(["--all"]);
  t.match(run.stdout, new RegExp(`${stale.name}: migrated`));
  t.notMatch(run.stdout, new RegExp(clean.name));
  t.match(run.stderr, /without StorageStates, ksvm cannot tell/);
});

alone("--all goes on without a CRD that is deleted before its turn comes", async (t) => {
  const [first, last] = [new TestKind("aaa"), new TestKind("zzz")];
  for (const kind of [first, last]) await cluster.createStale(kind, 1);
  let output = "";
  const onStdout = (text: string): void => void (output += text);
  const ended = cluster.ksvm(["migrate", "--all", "--unsafe-settle", "3s"], { onStdout });
  await eventually(async () => output.includes("waiting 3s"), "the wait begins");
  await api.delete(CRDS, last);
  // Its exit code is about the CRDs of other tests, too.
  const { stdout, stderr } = await ended;
  t.notMatch(stderr, last.name);
  t.match(stdout, new RegExp(`${first.name}: migrated`));
  t.match(stdout, new RegExp(`${last.name}: nothing to do: the cluster has no such resource`));
});

interface WholeObject {
  readonly metadata: {
    readonly generation: number;
    readonly resourceVersion: string;
    readonly deletionTimestamp?: string;
    readonly managedFields: readonly object[];
  };
}
