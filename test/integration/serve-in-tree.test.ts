import t from "tap";
import { IN_TREE_APISERVER, MIGRATIONS as IN_TREE } from "../../bench/in-tree.ts";
import { storedVersionsOf } from "../../src/api/crd.ts";
import { hasFreezeAnnotation } from "../../src/api/owner.ts";
import { MIGRATIONS } from "../../src/kube/resources.ts";
import { assertUnfrozen } from "./assert-no-traces.ts";
import { Cluster, eventually } from "./cluster.ts";
import { createMigration, installSystem, SLOW, untilState } from "./controller-fixture.ts";
import { TestKind } from "./crd-fixture.ts";
import { rejectUpdatesOf } from "./reject-updates.ts";
import {
  createInTree,
  migratingOf,
  servedStatus,
  startServing,
  untilServed,
  writeAsOther,
} from "./serve-in-tree-fixture.ts";
import { untilRewriting } from "./slow-run.ts";
import { installWebhook } from "./webhook-guard.ts";

const cluster = await Cluster.start(t, IN_TREE_APISERVER);
const { api } = cluster;
await installSystem(cluster);
const webhook = await installWebhook(cluster);
t.teardown(() => webhook.uninstall());

await t.test("a migration of a CRD ends as with the in-tree controller", async (t) => {
  const kind = new TestKind("served");
  await cluster.createStale(kind, 20);
  const serving = startServing(t, cluster, SLOW);
  await createInTree(cluster, "served", kind);
  await serving.until("serving");
  await untilRewriting(cluster, kind);
  t.match(await servedStatus(cluster, "served"), {
    conditions: ["Running=True MigrationRunning"],
    resourceVersion: /^\d+$/,
  });
  await eventually(async () => (await migratingOf(cluster, kind)) === "True MigrationRunning", "the CRD says so");

  const { conditions, state } = await untilServed(cluster, "served");
  t.equal(state, "Succeeded");
  t.same(conditions, ["Running=False MigrationCompleted", "Succeeded=True StorageVersionMigrationSucceeded"]);
  t.same(await cluster.storedAs(kind), { v1: 20 });
  t.same(storedVersionsOf(await cluster.crd(kind)), ["v1"]);
  t.equal(await migratingOf(cluster, kind), "False MigrationSucceeded");
  await assertUnfrozen(t, cluster, kind);
});

await t.test("where an object cannot be written, nothing is pruned, and the CRD is free again", async (t) => {
  const kind = new TestKind("failing");
  await cluster.createStale(kind, 3);
  const allow = await rejectUpdatesOf(cluster, kind, "w0");
  const serving = startServing(t, cluster);
  await serving.until("serving");
  await createInTree(cluster, "failing", kind);
  const { conditions, message } = await untilServed(cluster, "failing");
  t.same(conditions, ["Running=False MigrationCompleted", "Failed=True StorageVersionMigrationFailed"]);
  t.match(message, /^migration encountered unhandled error: ObjectsNotMigrated: /);
  t.same(
    await cluster.storedAs(kind),
    { v1alpha1: 1, v1: 2 },
    "it goes on past the object, unlike the in-tree controller",
  );
  t.same(storedVersionsOf(await cluster.crd(kind)), ["v1alpha1", "v1"]);
  t.equal(await migratingOf(cluster, kind), "False MigrationFailed");
  await assertUnfrozen(t, cluster, kind);

  await allow();
  await createInTree(cluster, "failing-again", kind);
  t.equal((await untilServed(cluster, "failing-again")).state, "Succeeded");
  t.same(await cluster.storedAs(kind), { v1: 3 });
  t.same(storedVersionsOf(await cluster.crd(kind)), ["v1"]);
});

await t.test("what does not exist, or cannot be written, fails as with the in-tree controller", async (t) => {
  const serving = startServing(t, cluster);
  await serving.until("serving");
  await createInTree(cluster, "reviews", { group: "authorization.k8s.io", resource: "subjectaccessreviews" });
  t.match(await untilServed(cluster, "reviews"), { state: "Failed", message: /does not offer/ });
  await createInTree(cluster, "nothing", { group: "example.com", resource: "nothing" });
  await eventually(async () => (await servedStatus(cluster, "nothing")).state === "Running", "it may come");
  t.match(await untilServed(cluster, "nothing"), { state: "Failed", message: "resource does not exist in discovery" });
});

await t.test("two migrations of one CRD run one after the other, together with one of ours", async (t) => {
  const kind = new TestKind("turns");
  await cluster.createStale(kind, 60);
  const serving = startServing(t, cluster, SLOW);
  await serving.until("serving");
  await createInTree(cluster, "turn-1", kind);
  await createInTree(cluster, "turn-2", kind);
  const own = await createMigration(cluster, kind);
  await untilRewriting(cluster, kind);
  t.same((await servedStatus(cluster, "turn-2")).conditions, []);
  t.equal((await untilServed(cluster, "turn-1")).state, "Succeeded");
  t.equal((await untilServed(cluster, "turn-2")).state, "Succeeded");
  await untilState(cluster, own, ["Succeeded"]);
  t.same(await cluster.storedAs(kind), { v1: 60 });
});

await t.test("one that is deleted stops, and the CRD is free; one of the same name is another one", async (t) => {
  const kind = new TestKind("deleted");
  await cluster.createStale(kind, 150);
  const serving = startServing(t, cluster, SLOW);
  await serving.until("serving");
  await createInTree(cluster, "deleted", kind);
  await untilRewriting(cluster, kind);
  await eventually(async () => (await migratingOf(cluster, kind)) === "True MigrationRunning", "the CRD says so");
  await api.delete(IN_TREE, { name: "deleted" });
  await eventually(
    async () => (await migratingOf(cluster, kind)) === "False MigrationFailed",
    "the CRD says that it ended",
  );
  await eventually(async () => !hasFreezeAnnotation(await cluster.crd(kind)), "it is not frozen");
  t.ok(((await cluster.storedAs(kind))["v1alpha1"] ?? 0) > 0, "there was work left");
  t.same(storedVersionsOf(await cluster.crd(kind)), ["v1alpha1", "v1"]);

  await createInTree(cluster, "deleted", kind);
  await untilRewriting(cluster, kind);
  await api.delete(IN_TREE, { name: "deleted" });
  await createInTree(cluster, "deleted", kind);
  t.equal((await untilServed(cluster, "deleted")).state, "Succeeded");
  t.same(await cluster.storedAs(kind), { v1: 150 });
  t.same(storedVersionsOf(await cluster.crd(kind)), ["v1"]);
  t.equal(await migratingOf(cluster, kind), "False MigrationSucceeded");
});

await t.test("where another client answers the probe, it serves nothing", async (t) => {
  const kind = new TestKind("refused");
  await cluster.createStale(kind, 3);
  const serving = startServing(t, cluster, { probeMs: 60_000 });
  await eventually(async () => (await probes()).length === 1, "the probe is there");
  await createInTree(cluster, "refused", kind);
  await writeAsOther(cluster, (await probes())[0] ?? "");
  await serving.until("refused");
  await eventually(async () => (await probes()).length === 0, "the probe is deleted");
  await new Promise((resolve) => setTimeout(resolve, 3_000));
  t.same((await servedStatus(cluster, "refused")).conditions, []);
  t.same(await cluster.storedAs(kind), { v1alpha1: 3 });
  await serving.stop();

  const again = startServing(t, cluster);
  await again.until("serving");
  t.equal((await untilServed(cluster, "refused")).state, "Succeeded", "negative control: without an answer it serves");
});

await t.test("where another client sets a status later, it stops at once, also in the middle of a run", async (t) => {
  const kind = new TestKind("later");
  await cluster.createStale(kind, 150);
  const serving = startServing(t, cluster, SLOW);
  await serving.until("serving");
  await createInTree(cluster, "later", kind);
  await untilRewriting(cluster, kind);
  await eventually(async () => (await migratingOf(cluster, kind)) === "True MigrationRunning", "the CRD says so");
  await writeAsOther(cluster, "later");
  await serving.until("refused");
  await eventually(
    async () => (await migratingOf(cluster, kind)) === "False MigrationFailed",
    "it takes its word back",
  );
  await eventually(async () => !hasFreezeAnnotation(await cluster.crd(kind)), "it is not frozen");
  const left = await cluster.storedAs(kind);
  t.ok((left["v1alpha1"] ?? 0) > 0, "there was work left");
  t.same(await companions("later"), []);
  await new Promise((resolve) => setTimeout(resolve, 3_000));
  t.same(await cluster.storedAs(kind), left, "nothing more is written");
  t.same((await servedStatus(cluster, "later")).conditions, ["Running=True Test"], "what the other one wrote stays");
  t.same(storedVersionsOf(await cluster.crd(kind)), ["v1alpha1", "v1"]);
  await api.delete(IN_TREE, { name: "later" });
});

/** The names of all probes. */
async function probes(): Promise<readonly string[]> {
  const { items } = await api.listMetadata(IN_TREE);
  return items.map(({ metadata }) => metadata.name).filter((name) => name.startsWith("ksvm-probe-"));
}

/** The names of our migrations that are for an in-tree one. */
async function companions(name: string): Promise<readonly string[]> {
  const { items } = await api.listMetadata(MIGRATIONS);
  const isOfIt = ({ metadata }: (typeof items)[number]): boolean =>
    (metadata.ownerReferences ?? []).some((owner) => owner.name === name);
  return items.filter(isOfIt).map(({ metadata }) => metadata.name);
}
