import tap from "tap";
import type { RunSettings } from "../../src/migrator/assemble-run.ts";
import { SETTINGS } from "./programs/migrate-program.ts";
import { planOf } from "./plan-of.ts";
import { simulate } from "./simulate.ts";

const SEEDS = 250;

/** The first seed that breaks something, and what. */
async function firstBroken(settings: RunSettings): Promise<string | undefined> {
  for (let seed = 1; seed <= SEEDS; seed++) {
    const { violations } = await simulate(planOf(seed), settings);
    if (violations[0] !== undefined) return `SEED=${seed}: ${violations[0]}`;
  }
  return undefined;
}

await tap.test(
  "in 250 simulated clusters ksvm migrate breaks nothing and comes to an end",
  { timeout: 600_000 },
  async (t) => {
    t.equal(await firstBroken(SETTINGS), undefined);
  },
);

await tap.test(
  "negative control: without the settle wait objects are lost in one of them",
  { timeout: 600_000 },
  async (t) => {
    const options = { ...SETTINGS.options, settleMs: 0 };
    t.match(await firstBroken({ ...SETTINGS, options }), /^SEED=\d+: S1: \d+ objects .* are stored as /);
  },
);

await tap.test("a seed is the same simulation each time", async (t) => {
  const [first, second] = [await simulate(planOf(4)), await simulate(planOf(4))];
  t.same(first.trace, second.trace);
  t.ok(first.requests > 20, `${first.requests} requests`);
  t.not((await simulate(planOf(5))).trace.join(), first.trace.join());
});
