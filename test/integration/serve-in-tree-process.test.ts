import t, { type Test } from "tap";
import { IN_TREE_APISERVER, migrateInTree, startInTree } from "../../bench/in-tree.ts";
import { storedVersionsOf } from "../../src/api/crd.ts";
import { ensureBinaries } from "../control-plane/binaries.ts";
import { assertUnfrozen } from "./assert-no-traces.ts";
import { Cluster, eventually } from "./cluster.ts";
import { createMigration, installSystem, untilState } from "./controller-fixture.ts";
import { TestKind } from "./crd-fixture.ts";
import { freePort, type Replica, spawnController } from "./replica.ts";
import { createInTree, migratingOf, untilServed } from "./serve-in-tree-fixture.ts";
import { untilRewriting } from "./slow-run.ts";

await ensureBinaries(["kube-controller-manager"]);
const cluster = await Cluster.start(t, IN_TREE_APISERVER);
await installSystem(cluster);

/** One replica, which finds out within half a minute whether another client serves. */
async function spawn(t: Test, flags: readonly string[] = []): Promise<Replica> {
  const webhookPort = await freePort();
  const all = ["--serve-in-tree-migrations", "--trigger=off", "--guard=policy", ...flags];
  return spawnController(t, cluster, { webhookPort, flags: all });
}

async function untilSays(replica: Replica, text: string): Promise<void> {
  await eventually(async () => replica.log().includes(text), `it says "${text}":\n${replica.log()}`);
}

await t.test("what a killed leader left halfway the next one ends", async (t) => {
  const kind = new TestKind("killed");
  await cluster.createStale(kind, 150);
  const first = await spawn(t, ["--max-qps=15", "--page-size=10"]);
  await createInTree(cluster, "killed", kind);
  await untilRewriting(cluster, kind);
  await eventually(async () => (await migratingOf(cluster, kind)) === "True MigrationRunning", "the CRD says so");
  first.kill("SIGKILL");
  await first.ended;
  t.ok(((await cluster.storedAs(kind))["v1alpha1"] ?? 0) > 0, "there was work left");

  await spawn(t);
  t.equal((await untilServed(cluster, "killed")).state, "Succeeded");
  t.same(await cluster.storedAs(kind), { v1: 150 });
  t.same(storedVersionsOf(await cluster.crd(kind)), ["v1"]);
  t.equal(await migratingOf(cluster, kind), "False MigrationSucceeded");
  await assertUnfrozen(t, cluster, kind);
});

await t.test("without the flag, what a killed leader left is taken back", async (t) => {
  const kind = new TestKind("taken-back");
  await cluster.createStale(kind, 150);
  const first = await spawn(t, ["--max-qps=15", "--page-size=10"]);
  await createInTree(cluster, "taken-back", kind);
  await untilRewriting(cluster, kind);
  await eventually(async () => (await migratingOf(cluster, kind)) === "True MigrationRunning", "the CRD says so");
  first.kill("SIGKILL");
  await first.ended;

  const webhookPort = await freePort();
  await spawnController(t, cluster, { webhookPort, flags: ["--trigger=off", "--guard=policy"] });
  await eventually(
    async () => (await migratingOf(cluster, kind)) === "False MigrationFailed",
    "the CRD says that it ended",
  );
  t.same(storedVersionsOf(await cluster.crd(kind)), ["v1alpha1", "v1"]);
});

await t.test("beside the real in-tree controller it serves nothing, and all else goes on", async (t) => {
  const [theirs, ours] = [new TestKind("theirs"), new TestKind("ours")];
  await Promise.all([theirs, ours].map((kind) => cluster.createStale(kind, 3)));
  await startInTree(cluster);
  const { outcome } = await migrateInTree(cluster, theirs, new AbortController().signal);
  t.equal(outcome, "Succeeded", "the in-tree controller is at work");
  const replica = await spawn(t);
  await untilSays(replica, "Not serving in-tree migrations: another client sets their status");
  t.match(replica.log(), /"manager":"kube-controller-manager"/);
  t.match((await replica.health("/metrics")).text, /ksvm_in_tree_service\{state="refused"\} 1/);
  await untilState(cluster, await createMigration(cluster, ours), ["Succeeded"]);
  t.same(await cluster.storedAs(ours), { v1: 3 });
});
