import type { Clock } from "../clock.ts";

/** How much work may be under way. */
export interface PacerOptions {
  readonly clock: Clock;
  /** Requests at the same time, at least 1. */
  readonly maxInFlight: number;
  /** Requests begun in a second; `Infinity` for no limit. */
  readonly maxQps: number;
  /** Told of every wait for a slot, in milliseconds. @default nobody is told */
  readonly onWait?: ((ms: number) => void) | undefined;
}

/** Runs work on many items within the limits on requests under way and requests per second. */
export class Pacer {
  readonly #options: PacerOptions;
  #nextSlot: number;

  constructor(options: PacerOptions) {
    this.#options = options;
    this.#nextSlot = options.clock.monotonic();
  }

  /**
   * Calls `work` for each item. The first error ends it: no item is begun after it, and it is thrown once those under
   * way are done.
   */
  async forEach<T>(items: readonly T[], work: (item: T) => Promise<void>, signal: AbortSignal): Promise<void> {
    const queue = items.values();
    const failures: unknown[] = [];
    const worker = async (): Promise<void> => {
      for (const item of queue) {
        if (failures.length > 0) {
          return;
        }
        try {
          await this.#slot(signal);
          await work(item);
        } catch (error) {
          failures.push(error);
        }
      }
    };
    const workers = Math.min(this.#options.maxInFlight, items.length);
    await Promise.all(Array.from({ length: workers }, worker));
    if (failures.length > 0) {
      throw failures[0];
    }
  }

  /** Slots lie evenly spread; one that was not used is not saved up, so there are no bursts. */
  async #slot(signal: AbortSignal): Promise<void> {
    signal.throwIfAborted();
    const { clock, maxQps, onWait } = this.#options;
    if (maxQps === Number.POSITIVE_INFINITY) {
      return;
    }
    const now = clock.monotonic();
    const slot = Math.max(now, this.#nextSlot);
    this.#nextSlot = slot + 1_000 / maxQps;
    if (slot > now) {
      onWait?.(slot - now);
      await clock.sleep(slot - now, signal);
    }
  }
}
