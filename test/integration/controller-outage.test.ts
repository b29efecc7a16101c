import t from "tap";
import { storedVersionsOf } from "../../src/api/crd.ts";
import { assertUnfrozen } from "./assert-no-traces.ts";
import { ApiClient } from "../../src/kube/client.ts";
import { loadKubeConfig } from "../../src/kube/connect/config.ts";
import { Transport } from "../../src/kube/transport.ts";
import { ChaosProxy } from "../chaos/chaos-proxy.ts";
import { UNDISTURBED } from "../chaos/disturbance.ts";
import { Cluster, eventually } from "./cluster.ts";
import {
  createMigration,
  installSystem,
  SLOW,
  spawnReplica,
  startController,
  untilState,
} from "./controller-fixture.ts";
import { TestKind } from "./crd-fixture.ts";
import { untilRewriting } from "./slow-run.ts";
import { installWebhook } from "./webhook-guard.ts";

/** Longer than a leader may go without a renewal, in milliseconds. */
const OUTAGE_MS = 14_000;

const cluster = await Cluster.start(t);
await installSystem(cluster);
const webhook = await installWebhook(cluster);
t.teardown(() => webhook.uninstall());

await t.test("an outage of the API server costs the leader its Lease, and the migration nothing", async (t) => {
  const kind = new TestKind("outage");
  await cluster.createStale(kind, 100);
  const replica = spawnReplica(t, cluster, "a", { maxQps: 15, pageSize: 10 });
  const created = await createMigration(cluster, kind);
  await untilRewriting(cluster, kind);
  const [apiserver] = cluster.controlPlane.apiservers;
  await apiserver?.kill();
  await eventually(async () => replica.program.stdout.includes("lost"), "it leads no more", 40_000);
  await new Promise((resolve) => setTimeout(resolve, OUTAGE_MS - 10_000));
  apiserver?.start();
  await apiserver?.waitReady();
  const ended = await untilState(cluster, created, ["Succeeded"], 60_000);
  t.same(await cluster.storedAs(kind), { v1: 100 });
  t.same(storedVersionsOf(await cluster.crd(kind)), ["v1"]);
  t.ok((ended.status?.counts?.migrated ?? 100) < 100, "it went on where it was");
  await assertUnfrozen(t, cluster, kind);
});

await t.test(
  "503 for longer than the budget of a run is waited for, without a freeze, and no user has to act",
  async (t) => {
    const kind = new TestKind("overloaded");
    await cluster.createStale(kind, 100);
    let isOverloaded = false;
    const disturb = () => (isOverloaded ? ({ kind: "answer", status: 503 } as const) : UNDISTURBED);
    const { kubeconfig } = await ChaosProxy.start(t, cluster.controlPlane, { disturb });
    const transport = new Transport(loadKubeConfig({ kubeconfig }));
    t.teardown(() => transport.close());
    startController(t, cluster, { ...SLOW, client: new ApiClient(transport), maxIdleMs: 3_000 });
    const created = await createMigration(cluster, kind);
    await untilRewriting(cluster, kind);
    isOverloaded = true;
    // The budget of the run is used up after three seconds, and so is that of what it waits for.
    await new Promise((resolve) => setTimeout(resolve, OUTAGE_MS));
    isOverloaded = false;
    const waiting = await untilState(cluster, created, ["Waiting"], 60_000);
    t.match(waiting.status?.conditions?.[0], { reason: "RetryBudgetExceeded", message: /503/ });
    await assertUnfrozen(t, cluster, kind);
    t.ok(((await cluster.storedAs(kind))["v1alpha1"] ?? 0) > 0, "there is work left");
    await untilState(cluster, created, ["Succeeded"], 60_000);
    t.same(await cluster.storedAs(kind), { v1: 100 });
    t.same(storedVersionsOf(await cluster.crd(kind)), ["v1"]);
    await assertUnfrozen(t, cluster, kind);
  },
);
