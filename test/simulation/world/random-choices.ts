import type { Random } from "../../chaos/random.ts";

/** True once in `times`. */
export function oneIn(random: Random, times: number): boolean {
  return random() * times < 1;
}

/** A number of milliseconds from `low` to `high`, short ones as often as long ones: each power of ten has its share. */
export function spread(random: Random, low: number, high: number): number {
  return low * (high / low) ** random();
}

/** One of several. @throws {RangeError} where there are none. */
export function oneOf<T>(random: Random, items: readonly T[]): T {
  const item = items[Math.floor(random() * items.length)];
  if (item === undefined) throw new RangeError("there is nothing to choose from");
  return item;
}
