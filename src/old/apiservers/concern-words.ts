import type { WriteConcern } from "./events.ts";

interface ConcernWords {
  /** What every API server shows. */
  readonly shown: string;
  /** How a late write may have been done. */
  readonly late: string;
}

const WORDS: Readonly<Record<WriteConcern, ConcernWords>> = {
  version: { shown: "the storage version", late: "in the old version" },
  key: { shown: "the same storage version", late: "with an old key or in an old version" },
};

/**
 * How people are told what a run looks at: one that re-encrypts looks at the key as well.
 * @param concern of the event
 */
export function wordsFor(concern: WriteConcern = "version"): ConcernWords {
  return WORDS[concern];
}
