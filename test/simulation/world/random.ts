import { type Random, randomFrom } from "../../chaos/random.ts";

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

/** A stream of random numbers by its name: the same ones again from the same seed, whatever others draw. */
export type Streams = (name: string) => Random;

/** The streams of a seed. What one actor draws does not change what another one does. */
export function streamsOf(seed: number): Streams {
  const streams = new Map<string, Random>();
  return (name) => {
    let stream = streams.get(name);
    if (stream === undefined) streams.set(name, (stream = randomFrom(seed ^ hashOf(name))));
    return stream;
  };
}

/** FNV-1a. */
function hashOf(text: string): number {
  let hash = 0x811c9dc5;
  for (let index = 0; index < text.length; index++) {
    hash = Math.imul(hash ^ text.charCodeAt(index), 0x01000193);
  }
  return hash >>> 0;
}
