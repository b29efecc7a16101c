import { availableParallelism } from "node:os";
import tap from "tap";
import { mutationNamed } from "../mutations/mutation-named.ts";
import { thirdOf } from "../mutations/third.ts";
import { violationOf } from "../runner/play-seeds.ts";
import { simulationPool } from "../runner/simulation-pool.ts";
import { violationKind } from "../shrink/violation-kind.ts";
import { readRegressions, type Regression, variantsOf } from "./regression.ts";

// With other tests beside it on a slow machine.
tap.setTimeout(900_000);

/** With how many seeds each is played: what chance decides may not be as it was when the plan was found. */
const SEEDS = 5;
const SEEDS_WITH_MUTATION = 20;
const regressions = readRegressions();

await tap.test("no plan that once broke something breaks anything", { timeout: 600_000 }, async (t) => {
  t.ok(regressions.length > 0);
  const pool = simulationPool({ workers: availableParallelism() });
  t.teardown(() => pool.kill());
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
async function brokenAgain(regression: Regression): Promise<string | undefined> {
  const pool = simulationPool({ workers: 1, mutation: mutationNamed(regression.mutation ?? "").name });
  try {
    for (const plan of variantsOf(regression, SEEDS_WITH_MUTATION)) {
      const violation = violationOf(await pool.do({ plan }));
      if (violation !== undefined && violationKind(violation) === violationKind(regression.violation)) return violation;
    }
    return undefined;
  } finally {
    await pool.kill();
  }
}

await tap.test(
  "negative control: a plan breaks again what it broke where its mistake is back",
  { timeout: 600_000 },
  async (t) => {
    const mutated = regressions.filter(({ mutation }) => mutation !== undefined);
    const waiting = [...thirdOf(mutated, "test/simulation/regressions/regressions.test.ts")];
    const lane = async (): Promise<void> => {
      for (let next = waiting.shift(); next !== undefined; next = waiting.shift()) {
        const why = `${next.name} has lost its power: shorten a seed that "${next.mutation}" breaks now`;
        t.not(await brokenAgain(next), undefined, why);
      }
    };
    await Promise.all(Array.from({ length: availableParallelism() }, lane));
  },
);
