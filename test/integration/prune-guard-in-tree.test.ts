import t from "tap";
import {
  IN_TREE_APISERVER,
  migrateInTree,
  MIGRATIONS as IN_TREE_MIGRATIONS,
  startInTree,
} from "../../bench/in-tree.ts";
import { storedVersionsOf } from "../../src/api/crd.ts";
import { STORAGE_MIGRATING_CONDITION } from "../../src/api/names.ts";
import { CRDS, MERGE_PATCH, MUTATING_POLICIES, MUTATING_POLICY_BINDINGS } from "../../src/kube/resources.ts";
import { PRUNE_POLICY_NAMES } from "../../src/prune-guard/prune-policies.ts";
import { ensureBinaries } from "../control-plane/binaries.ts";
import { Cluster, eventually } from "./cluster.ts";
import { TestKind } from "./crd-fixture.ts";
import { rejectUpdatesOf } from "./reject-updates.ts";

await ensureBinaries(["kube-controller-manager"]);
const cluster = await Cluster.start(t, IN_TREE_APISERVER);
/** Before the controller starts: it waits for the garbage collector, which looks for new kinds every 30 seconds. */
const [alone, restored, success, held] = await Promise.all([
  failing("alone"),
  failing("restored"),
  stale("success"),
  failing("held"),
]);
await startInTree(cluster);
const { signal } = new AbortController();

async function stale(word: string): Promise<TestKind> {
  const kind = new TestKind(word);
  await cluster.createStale(kind, 3);
  return kind;
}

/** One of the objects rejects every update, as in a migration that fails. */
async function failing(word: string): Promise<{ readonly kind: TestKind; readonly allow: () => Promise<void> }> {
  const kind = await stale(word);
  return { kind, allow: await rejectUpdatesOf(cluster, kind, "w0") };
}

/** Whether v1alpha1 can leave the CRD. */
function dropOldVersion(kind: TestKind): Promise<boolean> {
  return cluster.setVersions(kind, { storage: "v1", versions: ["v1"] }).then(
    () => true,
    () => false,
  );
}

/** How many of the three objects can be read. */
async function readable(kind: TestKind): Promise<number> {
  const reads = ["w0", "w1", "w2"].map((name) => cluster.api.get(kind.resource("v1"), { name, namespace: "default" }));
  return (await Promise.allSettled(reads)).filter(({ status }) => status === "fulfilled").length;
}

async function enable(...flags: readonly string[]): Promise<void> {
  const { code, stderr } = await cluster.ksvm(["guard", "enable", ...flags]);
  if (code !== 0) throw new Error(stderr);
  const kind = new TestKind("probe");
  await cluster.createStale(kind, 0);
  const patch = { type: MERGE_PATCH, body: { status: { storedVersions: ["v1"] } } };
  const isDenied = (): Promise<boolean> =>
    cluster.api.patch(CRDS, kind, patch, { subresource: "status", dryRun: true }).then(
      () => false,
      () => true,
    );
  await eventually(async () => (await isDenied()) === flags.includes("deny"), "the guard is in its mode");
}

await t.test("without the guard the in-tree controller prunes after a failure, and objects are lost", async (t) => {
  const { kind } = alone;
  const { outcome } = await migrateInTree(cluster, kind, signal);
  t.equal(outcome, "Failed");
  t.same(storedVersionsOf(await cluster.crd(kind)), ["v1"]);
  t.equal(await dropOldVersion(kind), true);
  await eventually(async () => (await readable(kind)) < 3, "an object that is stored as v1alpha1 cannot be read");
});

await t.test(
  "with --mode=deny the in-tree controller prunes after a success alone; after a failure it ends too",
  async (t) => {
    await enable("--mode", "deny");
    const { kind, allow } = restored;
    // Both at once, since a migration that fails takes a minute.
    const [failed, succeeded] = await Promise.all([kind, success].map((one) => migrateInTree(cluster, one, signal)));
    t.equal(succeeded?.outcome, "Succeeded");
    t.same(storedVersionsOf(await cluster.crd(success)), ["v1"]);

    t.equal(failed?.outcome, "Failed");
    t.equal(failed?.crdCondition?.reason, "MigrationFailed");
    t.same(storedVersionsOf(await cluster.crd(kind)), ["v1alpha1", "v1"]);
    t.equal(await dropOldVersion(kind), false);
    await allow();
    t.equal((await cluster.migrate([kind.name])).code, 0);
    t.same(await cluster.storedAs(kind), { v1: 3 });
    t.equal(await dropOldVersion(kind), true);
    t.equal(await readable(kind), 3);
  },
);

await t.test("where nothing can be put back, the denial holds, and the CRD can be freed and migrated", async (t) => {
  const { restore } = PRUNE_POLICY_NAMES;
  await cluster.api.delete(MUTATING_POLICY_BINDINGS, { name: restore });
  await cluster.api.delete(MUTATING_POLICIES, { name: restore });
  t.equal((await cluster.ksvm(["guard", "status"])).code, 1, "status tells that it is gone");
  const { kind, allow } = held;
  const migration = { name: kind.plural };
  await cluster.api.create(IN_TREE_MIGRATIONS, {
    apiVersion: "storagemigration.k8s.io/v1beta1",
    kind: "StorageVersionMigration",
    metadata: migration,
    spec: { resource: { group: "example.com", resource: kind.plural } },
  });
  await eventually(async () => (await inTreeConditions(migration)).includes("Failed"), "it has failed");
  await new Promise((resolve) => setTimeout(resolve, 5_000));
  t.same(await inTreeConditions(migration), ["Running", "Failed"], "it tries its prune again and again");
  t.equal(await migrating(kind), "True");
  t.same(storedVersionsOf(await cluster.crd(kind)), ["v1alpha1", "v1"]);
  t.equal(await dropOldVersion(kind), false);

  await allow();
  const refused = await cluster.migrate([kind.name]);
  t.equal(refused.code, 1);
  t.match(refused.stderr, `ksvm unfreeze ${kind.name}`);
  t.equal((await cluster.ksvm(["unfreeze", kind.name, "--yes"])).code, 0);
  t.equal((await cluster.migrate([kind.name])).code, 0);
  t.same(await cluster.storedAs(kind), { v1: 3 });
  t.same(storedVersionsOf(await cluster.crd(kind)), ["v1"]);
  await eventually(
    async () => !(await inTreeConditions(migration)).includes("Running"),
    "the in-tree controller ends by itself",
  );
  t.equal(await migrating(kind), "False");
  t.equal(await dropOldVersion(kind), true);
  t.equal(await readable(kind), 3);
});

/** The conditions that are True. */
async function inTreeConditions(ref: { readonly name: string }): Promise<readonly string[]> {
  type Status = { readonly conditions?: readonly { readonly type: string; readonly status: string }[] };
  const { status } = await cluster.api.get<{ status?: Status }>(IN_TREE_MIGRATIONS, ref);
  return (status?.conditions ?? []).filter(({ status: is }) => is === "True").map(({ type }) => type);
}

async function migrating(kind: TestKind): Promise<string | undefined> {
  const conditions = (await cluster.crd(kind)).status?.conditions ?? [];
  return conditions.find(({ type }) => type === STORAGE_MIGRATING_CONDITION)?.status;
}
