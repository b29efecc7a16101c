import tap from "tap";
import { play, playOfSeed, savedPlans } from "./runner.ts";

tap.setTimeout(900_000);

const SEEDS = 500;

await tap.test(`in ${SEEDS} simulated clusters ksvm breaks nothing and comes to an end`, async (t) => {
  for (let seed = 1; seed <= SEEDS; seed++) {
    const { violations } = await play(playOfSeed(seed));
    if (violations.length > 0) t.fail(`make simulate SEED=${seed}: ${violations[0]}`);
  }
  t.pass();
});

await tap.test("no plan that once broke something breaks anything", async (t) => {
  for (const plan of savedPlans()) {
    const { violations } = await play(plan);
    t.same(violations, [], `make simulate ${plan.name}`);
  }
});

/** What each seed did. */
async function digests(seeds: readonly number[]): Promise<readonly string[]> {
  const played = [];
  for (const seed of seeds) played.push((await play(playOfSeed(seed))).digest);
  return played;
}

await tap.test("a seed is the same simulation each time, and after each other seed", async (t) => {
  const seeds = [1, 2, 3, 4];
  const first = await digests(seeds);
  t.same(await digests(seeds.toReversed()), first.toReversed());
  t.equal(new Set(first).size, seeds.length, "no two of them are alike");
});
