import t from "tap";
import { IN_TREE_APISERVER, migrateInTree, startInTree } from "../../bench/in-tree.ts";
import { storedVersionsOf } from "../../src/api/crd.ts";
import { inTreeRunning } from "../../src/in-tree/in-tree-guard.ts";
import { ensureBinaries } from "../control-plane/binaries.ts";
import { assertUnfrozen } from "./assert-no-traces.ts";
import { Cluster, eventually } from "./cluster.ts";
import { createMigration, installSystem, startController, untilState } from "./controller-fixture.ts";
import { TestKind } from "./crd-fixture.ts";
import { installWebhook } from "./webhook-guard.ts";

await ensureBinaries(["kube-controller-manager"]);
const cluster = await Cluster.start(t, IN_TREE_APISERVER);
await installSystem(cluster);
const webhook = await installWebhook(cluster);
t.teardown(() => webhook.uninstall());

await t.test("a migration waits for the real in-tree controller, and finds its work done", async (t) => {
  startController(t, cluster);
  const kind = new TestKind("real");
  await cluster.createStale(kind, 30);
  await startInTree(cluster);
  const { signal } = new AbortController();
  const inTree = migrateInTree(cluster, kind, signal);
  const isRunning = async (): Promise<boolean> => (await inTreeRunning(cluster.api, kind.name, signal)) !== undefined;
  await eventually(isRunning, "the in-tree controller has begun", 150_000);
  const created = await createMigration(cluster, kind);
  const waiting = await untilState(cluster, created, ["Waiting"]);
  t.equal(waiting.status?.conditions?.[0]?.reason, "InTreeMigration");
  await assertUnfrozen(t, cluster, kind);
  t.equal((await inTree).outcome, "Succeeded");
  await untilState(cluster, created, ["Succeeded"], 60_000);
  t.same(await cluster.storedAs(kind), { v1: 30 });
  t.same(storedVersionsOf(await cluster.crd(kind)), ["v1"]);
});
