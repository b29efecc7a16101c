import type { SimProcess } from "./sim-process.ts";

/** Who stood still for so long knows nothing of a change whose stamp is old enough for ksvm, in milliseconds. */
export const LONG_MS = 900_000;
/** What an API server had under way when it stood still is over after this time: a request ends after a minute, in milliseconds. */
const QUIET_MS = 75_000;

/**
 * How much time has to pass before a run may begin, in milliseconds: ksvm promises nothing to one that begins less than a minute after
 * an API server goes on that stood still for 15 minutes (docs/simulation.md, "What it assumes"). One that begins before that looks at it.
 */
export function quietLeftMs(now: number, processes: readonly SimProcess[]): number {
  const wokeAt = Math.max(...processes.map((process) => process.wokeAfter(LONG_MS)));
  return Math.max(0, wokeAt + QUIET_MS - now);
}
