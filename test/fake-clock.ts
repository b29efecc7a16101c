import { type Clock, systemClock } from "../src/clock.ts";

/**
 * A clock that stands still until code sleeps: a sleep is over at once and moves it by what was asked for. Its timers and time
 * limits are real ones, since no test waits for them.
 */
export class FakeClock implements Clock {
  /** Every sleep, in milliseconds. */
  readonly sleeps: number[] = [];
  #elapsed = 0;
  readonly #epoch: number;

  constructor(epoch = Date.parse("2026-01-01T00:00:00Z")) {
    this.#epoch = epoch;
  }

  monotonic(): number {
    return this.#elapsed;
  }

  now(): number {
    return this.#epoch + this.#elapsed;
  }

  async sleep(ms: number, signal?: AbortSignal): Promise<void> {
    signal?.throwIfAborted();
    this.sleeps.push(ms);
    this.#elapsed += ms;
    // Others get their turn, as they would during a real sleep.
    await new Promise((resolve) => setImmediate(resolve));
    signal?.throwIfAborted();
  }

  timer(ms: number, onDue: () => void): () => void {
    return systemClock.timer(ms, onDue);
  }

  timeout(ms: number): AbortSignal {
    return systemClock.timeout(ms);
  }

  /** Moves the clock as if time had passed elsewhere. */
  advance(ms: number): void {
    this.#elapsed += ms;
  }
}
