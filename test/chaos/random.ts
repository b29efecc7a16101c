/** A number from 0 up to but not including 1; the same ones again from the same seed. */
export type Random = () => number;

/** Whether the long versions run: `make test-long` says so. */
export const IS_LONG = process.env["CHAOS"] === "long";

/** mulberry32: small, and good enough to choose a moment or a victim. */
export function randomFrom(seed: number): Random {
  let state = seed >>> 0;
  return () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let mixed = Math.imul(state ^ (state >>> 15), state | 1);
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  };
}

/** One of several. */
export function pick<T>(random: Random, items: readonly [T, ...T[]]): T {
  return items[Math.floor(random() * items.length)] ?? items[0];
}

/** A whole number from `low` up to but not including `high`. */
export function between(random: Random, low: number, high: number): number {
  return low + Math.floor(random() * (high - low));
}

/** The items in an order that chance gives them. */
export function shuffled<T>(random: Random, items: readonly T[]): readonly T[] {
  const placed = items.map((item) => ({ item, place: random() }));
  return placed.toSorted((a, b) => a.place - b.place).map(({ item }) => item);
}
