import { availableParallelism } from "node:os";
import tap from "tap";
import { findMutations, isAsStated, type MutationResult } from "./find-mutations.ts";
import { mutationNamed } from "./mutation-named.ts";
import { mutationTable, resultText } from "./mutation-table.ts";

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
const SEEDS = 200;

await tap.test(
  "negative control: mistakes in the code are found within 200 simulated clusters",
  { timeout: 600_000 },
  async (t) => {
    const told: string[] = [];
    const results = await findMutations(QUICK.map(mutationNamed), {
      workers: availableParallelism(),
      seeds: SEEDS,
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
  const [result] = await findMutations([mutationNamed(name)], { workers: 1, seeds: SEEDS });
  t.not(result?.found, undefined);
});

await tap.test("a mutation is played for as many seeds as it states, and not found where nothing breaks", async (t) => {
  const mutation = { ...mutationNamed("what is pruned is not read back"), withinSeeds: 2 };
  t.match(await findMutations([mutation], { workers: 1 }), [{ mutation, seeds: 2, found: undefined }]);
});

await tap.test("the table of the mutations says what found each, and why another one survives", (t) => {
  const mutation = { name: "a, not b", edits: [{ file: "x/y.ts", from: "", to: "" }], withinSeeds: 8 };
  const found: MutationResult = { mutation, found: { seed: 4, violation: "S1: lost" }, seeds: 4, seconds: 2.4 };
  const survives: MutationResult = {
    mutation: { ...mutation, survives: "another safeguard" },
    seeds: 1_000,
    seconds: 9,
  };
  t.same(mutationTable([found, survives]).slice(2), [
    "| a, not b | `x/y.ts` | 4 | S1: lost |",
    "| a, not b | `x/y.ts` | not in 1,000 | another safeguard |",
  ]);
  t.equal(resultText(found), "found     a, not b (SEED=4, 4 seeds, 2 s, to be found within 8): S1: lost");
  t.equal(resultText(survives), "SURVIVES  a, not b (1000 seeds, 9 s, to be found within 8)");
  t.same([found, survives, { ...found, mutation: survives.mutation }].map(isAsStated), [true, true, false]);
  t.end();
});
