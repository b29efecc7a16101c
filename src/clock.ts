import { setTimeout as delay } from "node:timers/promises";

/** The clock that waiting code is handed, so that tests need not wait. */
export interface Clock {
  /** Milliseconds on a clock that never goes backwards; its zero means nothing. */
  monotonic(): number;
  /** Milliseconds since the Unix epoch. */
  now(): number;
  /** Resolves after `ms` milliseconds; rejects with the signal's reason as soon as it is aborted. */
  sleep(ms: number, signal?: AbortSignal): Promise<void>;
}

/** The clock of this machine. */
export const systemClock: Clock = {
  monotonic: () => performance.now(),
  now: () => Date.now(),
  async sleep(ms, signal) {
    signal?.throwIfAborted();
    try {
      await delay(ms, undefined, signal === undefined ? {} : { signal });
    } catch (error) {
      signal?.throwIfAborted();
      throw error;
    }
  },
};
