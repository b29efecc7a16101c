import { queryObjects } from "node:v8";
import tap from "tap";
import { play, playOfSeed } from "./runner.ts";
import { testSeeds } from "./test-seeds.ts";
import { World } from "./world/world.ts";

tap.setTimeout(1_800_000);

await testSeeds(1, 250);

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

/** The types that are installed have the form without options. */
const countOf = queryObjects as unknown as (constructor: unknown, options: { readonly format: "count" }) => number;

await tap.test("nothing keeps a world that is over, whatever its processes waited for", async (t) => {
  const count = countOf(World, { format: "count" });
  t.ok(count <= 1, `${count} worlds are left`);
});
