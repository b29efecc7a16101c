import tap from "tap";
import { play, playOfSeed } from "./runner.ts";

/** Plays so many seeds in this process. */
export async function testSeeds(from: number, count: number): Promise<void> {
  await tap.test(`in ${count} simulated clusters ksvm breaks nothing and comes to an end`, async (t) => {
    let requests = 0;
    for (let seed = from; seed < from + count; seed++) {
      const played = await play(playOfSeed(seed));
      requests += played.requests;
      if (played.violations.length > 0) t.fail(`make simulate SEED=${seed}: ${played.violations[0]}`);
    }
    t.ok(requests > count * 100, `${requests} requests`);
  });
}
