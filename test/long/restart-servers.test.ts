import { setTimeout as delay } from "node:timers/promises";
import t, { type Test } from "tap";
import { readsOf } from "../control-plane/api-requests.ts";
import type { ManagedProcess } from "../control-plane/control-plane.ts";
import { Cluster } from "../integration/cluster.ts";
import { between, IS_LONG, randomFrom } from "../chaos/random.ts";
import { Scenario } from "../chaos/scenario.ts";
import { TEST_SEED } from "../seed.ts";

const seed = TEST_SEED;
const cluster = await Cluster.start(t, {});
const random = randomFrom(seed);
const ROUNDS = IS_LONG ? 5 : 1;
/** Also much longer than the Lease of a run lasts: nobody else wants it, so the run goes on all the same. */
const MOST_DOWN_MS = IS_LONG ? 50_000 : 2_000;

/** Of CRDs, a second, in the rest of one run, which reads the CRD at every step. A hot loop sends hundreds. */
const MOST_READS = 30;
const readsOfCrds = (): Promise<number> => readsOf(cluster.controlPlane, "customresourcedefinitions");

async function killInMidRun(t: Test, word: string, server: () => ManagedProcess): Promise<void> {
  for (let round = 0; round < ROUNDS; round++) {
    const scenario = await Scenario.start(t, cluster, word, { seed: seed + round, objects: 120 });
    const run = scenario.startKsvm(["--max-qps", "60"]);
    await run.untilLine("progress", "error");
    await delay(between(random, 0, 2_500));
    const startedAt = performance.now();
    await server().kill();
    await delay(between(random, 0, MOST_DOWN_MS));
    server().start();
    await server().waitReady();
    const downMs = Math.round(performance.now() - startedAt);
    const [readyAt, readsBefore] = [performance.now(), await readsOfCrds()];
    const end = await run.ended;
    const seconds = (performance.now() - readyAt) / 1_000;
    const reads = Math.round(((await readsOfCrds()) - readsBefore) / seconds);
    const [ending, counted] = [`the run ended with ${end.code}`, `${reads} reads of CRDs a second`];
    console.error(`  ${t.name}: ${server().name} was down for ${downMs} ms, ${ending}, ${counted}`);
    t.ok(reads < MOST_READS, "the run does not flood the API server that came back", { reads });
    t.equal(end.code, 0, "the run goes on", { stderr: end.stderr });
    await scenario.assertSoundEnd(t);
  }
}

await t.test("kill -9 and restart of the API server in mid-run", (t) =>
  killInMidRun(t, "apiserver", () => {
    const [apiserver] = cluster.controlPlane.apiservers;
    if (apiserver === undefined) throw new Error("there is one API server");
    return apiserver;
  }),
);

await t.test("kill -9 and restart of etcd in mid-run", (t) => killInMidRun(t, "etcd", () => cluster.controlPlane.etcd));
