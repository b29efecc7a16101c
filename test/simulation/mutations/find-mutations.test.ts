import { availableParallelism } from "node:os";
import tap from "tap";
import { findMutations, isAsStated, type MutationResult } from "./find-mutations.ts";
import { mutationNamed } from "./mutation-named.ts";
import { resultText } from "./mutation-text.ts";

// With other tests beside it on a slow machine.
tap.setTimeout(900_000);

/** Of those that are found soonest, some of each sort of check. */
const QUICK = [
  "prune although objects failed",
  "do not rewrite the last page",
  "do not freeze",
  "take a Lease over after a second",
] as const;
/** Several times as many as it takes. */
const RANGE = { from: 1, count: 200 };

await tap.test(
  "negative control: mistakes in the code are found within 200 simulated clusters",
  { timeout: 600_000 },
  async (t) => {
    const told: string[] = [];
    const results = await findMutations(QUICK.map(mutationNamed), {
      workers: availableParallelism(),
      range: RANGE,
      onResult: ({ mutation }) => told.push(mutation.name),
    });
    t.same(
      results.map(({ mutation }) => mutation.name),
      QUICK,
    );
    t.same(told.toSorted(), QUICK.toSorted());
    for (const result of results) t.not(result.found, undefined, resultText(result));
  },
);

await tap.test("a mutation that the environment names is compared with the code as it is", async (t) => {
  const [name] = QUICK;
  process.env["MUTATION"] = name;
  t.teardown(() => void delete process.env["MUTATION"]);
  const [result] = await findMutations([mutationNamed(name)], { workers: 1, range: RANGE });
  t.not(result?.found, undefined);
});

await tap.test(
  "a mutation is played for as many seeds as it is asked for, and not found where nothing breaks",
  async (t) => {
    const mutation = mutationNamed("what is pruned is not read back");
    const range = { from: 1, count: 2 };
    t.match(await findMutations([mutation], { workers: 1, range }), [{ mutation, seeds: 2, found: undefined }]);
  },
);

await tap.test("a mutation is played in the seed that it states", async (t) => {
  const mutation = mutationNamed("do not freeze");
  const results = await findMutations([mutation], { workers: 1 });
  t.match(results, [{ seeds: 1, found: { seed: mutation.found?.seed } }]);
  t.ok(results.every(isAsStated));
});

await tap.test("what became of a mutation is as it states, or not", (t) => {
  const edits = [{ file: "x/y.ts", from: "", to: "" }];
  const stated = { name: "a, not b", edits, found: { seed: 4, breaks: "S1: objects are lost" } };
  const mutation = { name: "b", edits, survives: "another safeguard" };
  const played = { seeds: 4, seconds: 2.4 };
  const found: MutationResult = { ...played, mutation: stated, found: { seed: 4, violation: "S1: 3 are lost" } };
  const survives: MutationResult = { mutation, seeds: 1_000, seconds: 9 };
  const gone: MutationResult = { mutation: stated, seeds: 1, seconds: 2 };
  t.equal(resultText(found), "found     a, not b (SEED=4, 4 seeds, 2 s, to be found in seed 4): S1: 3 are lost");
  t.equal(resultText(survives), "SURVIVES  b (1000 seeds, 9 s)");
  t.equal(resultText(gone), "SURVIVES  a, not b (1 seed, 2 s, to be found in seed 4)");
  t.ok([found, survives, { ...found, found: { seed: 2, violation: "told: x" } }].every(isAsStated));
  t.notOk([gone, { ...found, mutation }, { ...found, found: { seed: 4, violation: "told: x" } }].some(isAsStated));
  t.end();
});
