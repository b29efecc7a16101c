import { setImmediate as turn } from "node:timers/promises";
import { type Clock, systemClock } from "../src/clock.ts";

interface Sleeper {
  readonly until: number;
  readonly wake: () => void;
}

/**
 * A clock that stands still until a test moves it: code that sleeps wakes up when it gets there, in order. Its timers and time
 * limits are real ones.
 */
export class ManualClock implements Clock {
  #elapsed = 0;
  #asleep = 0;
  readonly #epoch = Date.parse("2026-01-01T00:00:00Z");
  readonly #sleepers = new Set<Sleeper>();

  monotonic(): number {
    return this.#elapsed;
  }

  now(): number {
    return this.#epoch + this.#asleep + this.#elapsed;
  }

  /** The machine sleeps: time passes by the wall clock alone. */
  sleepMachine(ms: number): void {
    this.#asleep += ms;
  }

  async sleep(ms: number, signal?: AbortSignal): Promise<void> {
    signal?.throwIfAborted();
    const { promise, resolve } = Promise.withResolvers<void>();
    const wake = (): void => resolve();
    const sleeper = { until: this.#elapsed + ms, wake };
    this.#sleepers.add(sleeper);
    signal?.addEventListener("abort", wake, { once: true });
    await promise;
    signal?.removeEventListener("abort", wake);
    this.#sleepers.delete(sleeper);
    signal?.throwIfAborted();
  }

  timer(ms: number, onDue: () => void): () => void {
    return systemClock.timer(ms, onDue);
  }

  timeout(ms: number): AbortSignal {
    return systemClock.timeout(ms);
  }

  /** Moves the clock, and lets code that wakes up do what comes next. */
  async advance(ms: number): Promise<void> {
    const end = this.#elapsed + ms;
    await settled();
    for (;;) {
      const [next] = [...this.#sleepers].toSorted((a, b) => a.until - b.until);
      if (next === undefined || next.until > end) break;
      this.#elapsed = Math.max(this.#elapsed, next.until);
      this.#sleepers.delete(next);
      next.wake();
      await settled();
    }
    this.#elapsed = end;
  }
}

/** Enough turns of the event loop for anything that waits for no clock and no network. */
async function settled(): Promise<void> {
  for (let turns = 0; turns < 20; turns++) await turn();
}
