import { availableParallelism } from "node:os";
import tap, { type Test } from "tap";
import { mutationNamed } from "../mutations/mutation-named.ts";
import { violationOf } from "../runner/play-seeds.ts";
import type { Played, PlayTask } from "../runner/play-task.ts";
import { simulationPool } from "../runner/simulation-pool.ts";
import type { WorkerPool } from "../runner/worker-pool.ts";
import { violationKind } from "../shrink/violation-kind.ts";
import { readRegressions, type Regression, variantsOf } from "./regression.ts";

// With other tests beside it on a slow machine.
tap.setTimeout(900_000);

/** With how many seeds each is played: what chance decides may not be as it was when the plan was found. */
const SEEDS = 5;
const SEEDS_WITH_MUTATION = 20;
const regressions = readRegressions();

function poolOf(t: Test, workers: number, mutation?: string): WorkerPool<PlayTask, Played> {
  const pool = simulationPool({ workers, mutation });
  t.teardown(() => pool.kill());
  return pool;
}

await tap.test("no plan that once broke something breaks anything", { timeout: 600_000 }, async (t) => {
  t.ok(regressions.length > 0);
  const pool = poolOf(t, availableParallelism());
  const plays = regressions.flatMap((regression) =>
    variantsOf(regression, SEEDS).map((plan) => ({ regression, plan })),
  );
  await Promise.all(
    plays.map(async ({ regression, plan }) => {
      const violation = violationOf(await pool.do({ plan }));
      t.equal(violation, undefined, `${regression.name}, seed ${plan.seed}`);
    }),
  );
});

/** What a plan breaks with the mutation that it names, of the kind that it once broke. */
async function brokenAgain(t: Test, regression: Regression): Promise<string | undefined> {
  const pool = poolOf(t, 1, mutationNamed(regression.mutation ?? "").name);
  for (const plan of variantsOf(regression, SEEDS_WITH_MUTATION)) {
    const violation = violationOf(await pool.do({ plan }));
    if (violation !== undefined && violationKind(violation) === violationKind(regression.violation)) return violation;
  }
  return undefined;
}

await tap.test(
  "negative control: a plan breaks again what it broke where its mistake is back",
  { timeout: 600_000 },
  async (t) => {
    for (const regression of regressions.filter(({ mutation }) => mutation !== undefined)) {
      const why = `${regression.name} has lost its power: shorten a seed that "${regression.mutation}" breaks now`;
      t.not(await brokenAgain(t, regression), undefined, why);
    }
  },
);
