import { queryObjects } from "node:v8";
import tap from "tap";
import { play, playOfSeed } from "./runner.ts";
import { World } from "./world/world.ts";

tap.setTimeout(1_800_000);

const SEEDS = 200;
/** These are played once more, in another order. */
const AGAIN = 4;

const digests: string[] = [];

await tap.test(`in ${SEEDS} simulated clusters ksvm breaks nothing and comes to an end`, async (t) => {
  let sent = 0;
  for (let seed = 1; seed <= SEEDS; seed++) {
    const { digest, requests, violations } = await play(playOfSeed(seed));
    digests.push(digest);
    sent += requests;
    if (violations.length > 0) t.fail(`make simulate SEED=${seed}: ${violations[0]}`);
  }
  t.ok(sent > SEEDS * 100, `${sent} requests`);
});

await tap.test("a seed is the same simulation each time, and after each other seed", async (t) => {
  for (let seed = AGAIN; seed >= 1; seed--) {
    const { digest } = await play(playOfSeed(seed));
    t.equal(digest, digests[seed - 1], `seed ${seed}`);
  }
  t.equal(new Set(digests).size, SEEDS, "no two of them are alike");
});

/** The types that are installed have the form without options. */
const countOf = queryObjects as unknown as (constructor: unknown, options: { readonly format: "count" }) => number;

await tap.test("nothing keeps a world that is over, whatever its processes waited for", async (t) => {
  const count = countOf(World, { format: "count" });
  t.ok(count <= 1, `${count} worlds are left`);
});
