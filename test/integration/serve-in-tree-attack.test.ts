import { setTimeout as sleep } from "node:timers/promises";
import t from "tap";
import { IN_TREE_APISERVER } from "../../bench/in-tree.ts";
import { storedVersionsOf } from "../../src/api/crd.ts";
import { CRDS } from "../../src/kube/resources.ts";
import { Cluster, eventually } from "./cluster.ts";
import { installSystem, SLOW } from "./controller-fixture.ts";
import { TestKind } from "./crd-fixture.ts";
import { holdCreation } from "./hold-creations.ts";
import { createInTree, migratingOf, startServing, untilServed } from "./serve-in-tree-fixture.ts";
import { untilRewriting } from "./slow-run.ts";

const SETTLE_MS = 20_000;
/** For so long a write is held after the storage version changed. */
const HELD_MS = 10_000;
const MANY = 500;

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

function isFailed({ state }: { readonly state: string }): boolean {
  return state === "Failed";
}
