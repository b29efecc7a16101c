import { setTimeout as delay } from "node:timers/promises";
import t, { type Test } from "tap";
import { balance } from "../integration/balancer.ts";
import { identityOfHost } from "../chaos/identity-lease.ts";
import { HELD_WRITES, PausableServers } from "../chaos/pausable-servers.ts";
import { IS_LONG } from "../chaos/random.ts";
import { Scenario, type ScenarioOptions } from "../chaos/scenario.ts";
import { TEST_SEED } from "../seed.ts";

const seed = TEST_SEED;
const REQUEST_TIMEOUT_S = 8;
const HOST = "control-plane-2";
// Host names of their own, and so an identity Lease each: by these alone the second one is known.
const servers = await PausableServers.start(t, {
  requestTimeoutS: REQUEST_TIMEOUT_S,
  overrides: [{ hostname: "control-plane-1" }, { hostname: HOST }],
});
const { cluster } = servers;
const BOTH = [servers.first.url, servers.second.url];
const balancer = await balance(t, cluster.controlPlane, BOTH);
const OBJECTS = 150;
const OPTIONS: ScenarioOptions = {
  seed,
  objects: OBJECTS,
  kubeconfig: balancer.kubeconfig,
  // Longer than a request may be under way; no flag names an API server.
  flags: ["--unsafe-settle", `${REQUEST_TIMEOUT_S + 1}s`],
};

const identity = await identityOfHost(cluster.api, HOST);

/** A scenario in which the second API server hangs from before the storage change, with writes under way on it. */
async function startHung(t: Test, word: string, more: Partial<ScenarioOptions> = {}) {
  let held: Promise<readonly number[]> = Promise.resolve([]);
  const scenario = await Scenario.start(t, cluster, word, {
    ...OPTIONS,
    ...more,
    beforeStorageChange: async (kind) => {
      held = (await servers.pauseWithWrites(kind)).statuses;
      // The load balancer takes it out of turn, as after a failed health check.
      balancer.use(BOTH.slice(0, 1));
    },
  });
  const wakeUp = async (): Promise<readonly number[]> => {
    await servers.resume();
    balancer.use(BOTH);
    return await held;
  };
  return { scenario, wakeUp };
}

await t.test("SIGSTOP, before the storage change, of an API server that discovery alone shows", async (t) => {
  const { scenario, wakeUp } = await startHung(t, "hung");
  const run = scenario.startKsvm();
  const waiting = await run.untilLine("waiting", "error");
  t.match(waiting, { type: "waiting", for: "apiServer", reason: identity }, "it says whom it waits for");
  await delay(IS_LONG ? 45_000 : 5_000);
  t.notOk(await scenario.isPruned(), "nothing is pruned while it hangs");
  const statuses = await wakeUp();
  t.notOk(await scenario.isPruned(), "nothing is pruned while a write of the old version is under way");
  const late = await servers.lateWrites(scenario.kind);
  t.ok(late > 0, `${late} of ${HELD_WRITES} writes landed in the old version after SIGCONT`, { statuses });
  const end = await run.ended;
  t.equal(end.code, 0, end.stderr);
  await scenario.assertSoundEnd(t);
});

await t.test("negative control: where the hung API server is ignored, its late writes break S1", async (t) => {
  const { scenario, wakeUp } = await startHung(t, "ignored", { load: false });
  const end = await scenario.startKsvm(["--ignore-apiserver", identity]).ended;
  t.equal(end.code, 0, end.stderr);
  t.ok(await scenario.isPruned(), "it is pruned while the API server hangs");
  await wakeUp();
  const report = await scenario.checker.stop();
  t.ok(report.breachesInHistory.length > 0, "the checker sees them in etcd's history");
  t.ok(report.breachesInSnapshots.length > 0, "and in its snapshots");
});
