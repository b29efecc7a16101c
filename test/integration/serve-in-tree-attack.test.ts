import { setTimeout as sleep } from "node:timers/promises";
import t from "tap";
import { IN_TREE_APISERVER } from "../../bench/in-tree.ts";
import { storedVersionsOf } from "../../src/api/crd.ts";
import type { StorageVersionMigration } from "../../src/api/migration.ts";
import { CREATED_BY_IN_TREE, CREATED_BY_LABEL, FORCE_ANNOTATION } from "../../src/api/names.ts";
import { CRDS, MERGE_PATCH, MIGRATIONS } from "../../src/kube/resources.ts";
import { companionNameOf } from "../../src/serve-in-tree/next-step.ts";
import { Cluster, eventually } from "./cluster.ts";
import { installSystem, SLOW, startController } from "./controller-fixture.ts";
import { GROUP, TestKind } from "./crd-fixture.ts";
import { holdCreation } from "./hold-creations.ts";
import { createInTree, migratingOf, startServing, untilServed } from "./serve-in-tree-fixture.ts";
import { pruneByHand } from "./lost-objects.ts";
import { untilRewriting } from "./slow-run.ts";

const SETTLE_MS = 20_000;
/** For so long a write is held after the storage version changed. */
const HELD_MS = 10_000;
const MANY = 500;
const NO_IN_TREE = { "storagemigration.k8s.io/v1beta1": false };

const cluster = await Cluster.start(t, IN_TREE_APISERVER);
await installSystem(cluster);

for (const settleMs of [SETTLE_MS, 0]) {
  const what =
    settleMs === 0 ? "negative control: without the settle time a late write is lost" : "a late write is kept";
  await t.test(`${what}, of a CRD whose migration comes with it`, async (t) => {
    const kind = new TestKind(`late-${settleMs}`);
    await cluster.createCrd(kind, { storage: "v1alpha1" });
    await cluster.createObjects(kind.resource("v1alpha1"), kind.objects(3, "v1alpha1"));
    const serving = startServing(t, cluster, { guard: "policy", settleMs });
    await serving.until("serving");
    const late = await holdCreation(t, cluster, kind, { name: "late", version: "v1alpha1" });
    await cluster.setVersions(kind, { storage: "v1" });
    await createInTree(cluster, kind.plural, kind);
    await sleep(HELD_MS);
    await late.letGo();
    t.equal((await untilServed(cluster, kind.plural)).state, "Succeeded");
    t.same(storedVersionsOf(await cluster.crd(kind)), ["v1"]);
    t.same(await cluster.storedAs(kind), settleMs === 0 ? { v1: 3, v1alpha1: 1 } : { v1: 4 });
  });
}

await t.test("a CRD that is deleted halfway ends its migration, and no other one", async (t) => {
  const [gone, other] = [new TestKind("gone"), new TestKind("other")];
  await Promise.all([gone, other].map((kind) => cluster.createStale(kind, 100)));
  const serving = startServing(t, cluster, { ...SLOW, guard: "policy" });
  await serving.until("serving");
  await Promise.all([gone, other].map((kind) => createInTree(cluster, kind.plural, kind)));
  await untilRewriting(cluster, gone);
  await cluster.api.delete(CRDS, gone);
  t.match(await untilServed(cluster, gone.plural), { state: "Failed", message: /CrdReplaced|ResourceNotFound/ });
  t.equal((await untilServed(cluster, other.plural)).state, "Succeeded");
  t.same(await cluster.storedAs(other), { v1: 100 });
});

await t.test(`${MANY} migrations at once, of which most are of nothing, keep none from its turn`, async (t) => {
  const kind = new TestKind("among-many");
  await cluster.createStale(kind, 3);
  const names = Array.from({ length: MANY }, (_, index) => `many-${String(index).padStart(3, "0")}`);
  for (const name of names) {
    await createInTree(cluster, name, { group: "example.com", resource: name });
  }
  await createInTree(cluster, "zz-last", kind);
  const serving = startServing(t, cluster, { guard: "policy" });
  await serving.until("serving");
  t.equal((await untilServed(cluster, "zz-last")).state, "Succeeded");
  t.same(await cluster.storedAs(kind), { v1: 3 });
  t.equal(await migratingOf(cluster, kind), "False MigrationSucceeded");
  await eventually(
    async () => (await Promise.all(names.slice(-5).map((name) => untilServed(cluster, name)))).every(isFailed),
    "those of nothing have failed",
  );
});

await t.test("one of ours that found nothing to do is no companion, whatever was written onto it later", async (t) => {
  const kind = new TestKind("pretended");
  await cluster.createStale(kind, 3);
  await pruneByHand(cluster, kind);
  const { name } = await createCompanion(kind);
  const controller = startController(t, cluster, { guard: "policy" });
  const outcome = async () => {
    const { status } = await cluster.api.get<StorageVersionMigration>(MIGRATIONS, { name });
    return status?.conditions?.map(({ reason, type }) => `${type} ${reason}`) ?? [];
  };
  await eventually(async () => (await outcome()).includes("Succeeded NothingToDo"), "it found nothing to do");
  await controller.stop();
  const metadata = { annotations: { [FORCE_ANNOTATION]: "true" }, labels: { [CREATED_BY_LABEL]: CREATED_BY_IN_TREE } };
  await cluster.api.patch(MIGRATIONS, { name }, { type: MERGE_PATCH, body: { metadata } });
  await startServing(t, cluster, { guard: "policy" }).until("serving");
  t.equal((await untilServed(cluster, kind.plural)).state, "Succeeded");
  t.same(await cluster.storedAs(kind), { v1: 3 }, "every object is written again");
});

await t.test("where another client took the name of a companion, the migration fails and says so", async (t) => {
  const kind = new TestKind("taken");
  await cluster.createStale(kind, 3);
  const serving = startServing(t, cluster, { guard: "policy" });
  const { name } = await createCompanion(kind);
  await serving.until("serving");
  t.match(await untilServed(cluster, kind.plural), {
    state: "Failed",
    message: `another client created the migration.migration.k8s.io "${name}"`,
  });
  t.ok(await cluster.api.find(MIGRATIONS, { name }), "it is left to its client");
});

await t.test(
  "once the API server does not serve in-tree migrations any more, nor does ksvm; and again later",
  async (t) => {
    const serving = startServing(t, cluster, { guard: "policy" });
    await serving.until("serving");
    await cluster.controlPlane.restartApiserver(0, { ...IN_TREE_APISERVER, runtimeConfig: NO_IN_TREE });
    await serving.until("unserved");
    await cluster.controlPlane.restartApiserver(0, IN_TREE_APISERVER);
    await eventually(async () => serving.state() === "serving", "it serves again", 120_000);
  },
);

/** A migration of ours under the name of the one that would do the work of an in-tree migration, which it creates, too. */
async function createCompanion(kind: TestKind) {
  const migration = await createInTree(cluster, kind.plural, kind);
  const metadata = { name: companionNameOf(migration) };
  const apiVersion = "migration.k8s.io/v1alpha1";
  const resource = { group: GROUP, version: "v1", resource: kind.plural };
  await cluster.api.create(MIGRATIONS, { apiVersion, kind: "StorageVersionMigration", metadata, spec: { resource } });
  return metadata;
}

function isFailed({ state }: { readonly state: string }): boolean {
  return state === "Failed";
}
