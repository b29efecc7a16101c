import { type Random, randomFrom } from "../../chaos/random.ts";

/** A stream of random numbers by its name: the same ones again from the same seed, whatever others draw. */
export type Streams = (name: string) => Random;

/** The streams of a seed. What one actor draws does not change what another one does, so that a plan can be made shorter. */
export function streamsOf(seed: number): Streams {
  const streams = new Map<string, Random>();
  return (name) => {
    let stream = streams.get(name);
    if (stream === undefined) {
      stream = randomFrom(seed ^ hashOf(name));
      streams.set(name, stream);
    }
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
