import { availableParallelism } from "node:os";
import tap from "tap";
import { MUTATIONS } from "../mutations.ts";
import { findMutations, isAsStated } from "./find-mutations.ts";
import { resultText } from "./mutation-text.ts";
import { thirdOf } from "./third.ts";

// With other tests beside it on a slow machine.
tap.setTimeout(1_800_000);

await tap.test(
  "each mutation breaks what it says in the seed that it states, and nothing breaks there without it",
  { timeout: 1_700_000 },
  async (t) => {
    const stated = MUTATIONS.filter(({ found }) => found !== undefined);
    t.ok(stated.length > 100);
    const played = thirdOf(stated, "test/simulation/mutations/stated-seeds.test.ts");
    const results = await findMutations(played, { workers: availableParallelism() });
    t.equal(results.length, played.length);
    for (const result of results) t.ok(isAsStated(result), resultText(result));
  },
);
