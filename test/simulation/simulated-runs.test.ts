import { availableParallelism } from "node:os";
import tap, { type Test } from "tap";
import { playHere } from "./runner/play-here.ts";
import { playSeeds } from "./runner/play-seeds.ts";
import type { Played, PlayTask } from "./runner/play-task.ts";
import { SeedList } from "./runner/seed-list.ts";
import { simulationPool } from "./runner/simulation-pool.ts";
import { emptyTotals, totalsText } from "./runner/totals.ts";
import type { WorkerPool } from "./runner/worker-pool.ts";

const SEEDS = 2_000;
// About two minutes on two cores that have nothing else to do; with other tests beside it, and on a slow machine, several times that.
const TIMEOUT_MS = 1_200_000;
tap.setTimeout(TIMEOUT_MS);

function poolOf(t: Test, workers: number): WorkerPool<PlayTask, Played> {
  const pool = simulationPool({ workers });
  t.teardown(() => pool.kill());
  return pool;
}

await tap.test(
  "in 2,000 simulated clusters ksvm breaks nothing and comes to an end",
  { timeout: TIMEOUT_MS },
  async (t) => {
    const pool = poolOf(t, availableParallelism());
    const seeds = new SeedList({ from: 1, count: SEEDS });
    const totals = emptyTotals();
    const startedAt = performance.now();
    await playSeeds({
      play: (task) => pool.do(task),
      atOnce: pool.atOnce,
      seeds,
      totals,
      // The first few say enough.
      onPlayed: () => totals.brokenCount >= 10 || pool.failure !== undefined,
    });
    totals.seconds = (performance.now() - startedAt) / 1_000;
    t.comment(totalsText(seeds.done, totals));
    t.same(totals.broken, [], "make simulate SEED=… shows one");
    t.equal(seeds.done, SEEDS);
  },
);

/** What each seed did, by SHA-256 of its trace. */
async function digestsOf(
  pool: WorkerPool<PlayTask, Played>,
  seeds: readonly number[],
): Promise<ReadonlyMap<number, string>> {
  const digests = new Map<number, string>();
  for (const seed of seeds) {
    const done = await pool.do({ seed });
    digests.set(
      seed,
      done.kind === "result" ? `${done.result.traceDigest} ${done.result.requests}` : JSON.stringify(done),
    );
  }
  return digests;
}

await tap.test(
  "a seed is the same simulation each time, in each process and after each other seed",
  { timeout: 300_000 },
  async (t) => {
    const seeds = Array.from({ length: 12 }, (_, index) => index + 1);
    const first = await digestsOf(poolOf(t, 1), seeds);
    const backwards = await digestsOf(poolOf(t, 1), seeds.toReversed());
    for (const seed of seeds) t.equal(backwards.get(seed), first.get(seed), `SEED=${seed}`);
    t.equal(new Set(first.values()).size, seeds.length, "no two of them are alike");
    const here = await playHere({ seed: 4, withTrace: true });
    t.equal(`${here.traceDigest} ${here.requests}`, first.get(4));
    t.same((await playHere({ seed: 4, withTrace: true })).trace, here.trace);
    t.ok(here.requests > 20, `${here.requests} requests`);
  },
);
