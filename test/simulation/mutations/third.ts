import { announcedTestSeed, randomFrom, shuffled } from "../../chaos/random.ts";

/**
 * A third of what is played with mutations, which takes a process each: chance chooses one each time, and SEED the same one again.
 * `make test-mutations` (MUTATIONS=all) has all of them.
 * @param path of the test that plays them
 */
export function thirdOf<T>(items: readonly T[], path: string): readonly T[] {
  if (process.env["MUTATIONS"] === "all") return items;
  return shuffled(randomFrom(announcedTestSeed(path)), items).slice(0, Math.ceil(items.length / 3));
}
