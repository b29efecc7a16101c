import tap from "tap";
import { play, playOfSeed } from "./runner.ts";
import { SABOTAGES } from "./sabotages.ts";

tap.setTimeout(1_800_000);

for (const sabotage of SABOTAGES) {
  await tap.test(`something breaks where ${sabotage.name}`, async (t) => {
    let violation: string | undefined;
    let seed = 0;
    while (violation === undefined && seed < sabotage.seeds) {
      seed++;
      [violation] = (await play(playOfSeed(seed, sabotage), sabotage)).violations;
    }
    t.ok(violation, `make simulate SABOTAGE="${sabotage.name}" SEEDS=${sabotage.seeds}`);
    t.comment(`seed ${seed}: ${violation}`);
  });
}
