import { setTimeout as delay } from "node:timers/promises";

/** The clock that waiting code is handed, so that tests need not wait. */
export interface Clock {
  /** Milliseconds on a clock that never goes backwards; its zero means nothing. */
  monotonic(): number;
  /** Milliseconds since the Unix epoch. */
  now(): number;
  /** Resolves after `ms` milliseconds; rejects with the signal's reason as soon as it is aborted. */
  sleep(ms: number, signal?: AbortSignal): Promise<void>;
  /** Calls `onDue` once, after `ms` milliseconds. It keeps the process alive until then. @returns what cancels it */
  timer(ms: number, onDue: () => void): () => void;
  /** A signal that is aborted after `ms` milliseconds, at most 24.8 days. It keeps no process alive. */
  timeout(ms: number): AbortSignal;
}

/** The longest time that a timer of Node.js can wait, in milliseconds: 24.8 days. A longer one ends after 1 ms. */
const LONGEST_TIMER_MS = 2 ** 31 - 1;

/** What a timer of Node.js can take. It warns on standard error of a time below 0, such as what is left until a moment that has just passed. */
function timerMs(ms: number): number {
  return Math.min(Math.max(ms, 0), LONGEST_TIMER_MS);
}

/** The clock of this machine. */
export const systemClock: Clock = {
  monotonic: () => performance.now(),
  now: () => Date.now(),
  async sleep(ms, signal) {
    signal?.throwIfAborted();
    try {
      let left = ms;
      do {
        await delay(timerMs(left), undefined, signal === undefined ? {} : { signal });
        left -= LONGEST_TIMER_MS;
      } while (left > 0);
    } catch (error) {
      signal?.throwIfAborted();
      throw error;
    }
  },
  timer(ms, onDue) {
    let timer: NodeJS.Timeout;
    const wait = (left: number): void => {
      const onEnd = left > LONGEST_TIMER_MS ? () => wait(left - LONGEST_TIMER_MS) : onDue;
      timer = setTimeout(onEnd, timerMs(left));
    };
    wait(ms);
    return () => clearTimeout(timer);
  },
  // AbortSignal.timeout() throws for parts of a millisecond.
  timeout: (ms) => AbortSignal.timeout(Math.ceil(timerMs(ms))),
};
