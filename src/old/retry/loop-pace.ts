import type { Clock } from "../../clock.ts";

/** How fast a loop may go. */
export interface LoopPaceOptions {
  readonly clock: Clock;
  /** Milliseconds from the beginning of one turn to the beginning of the next, at least. */
  readonly minMs: number;
  /** The interval doubles with each turn up to this many milliseconds, until {@link LoopPace.reset}. @default minMs */
  readonly maxMs?: number;
  /** Turns after which the interval begins to double. @default 0 */
  readonly freeTurns?: number;
}

/**
 * The minimum interval of a loop that talks to an API server. An answer that repeats, whatever it says, costs the API
 * server no more than one request in each interval. The first turn does not wait.
 */
export class LoopPace {
  readonly #options: LoopPaceOptions;
  #intervalMs: number;
  #freeTurns: number;
  #nextAt = Number.NEGATIVE_INFINITY;

  constructor(options: LoopPaceOptions) {
    this.#options = options;
    this.#intervalMs = options.minMs;
    this.#freeTurns = options.freeTurns ?? 0;
  }

  /** Whether the turns of late were so many that the interval grows. */
  get isSlowing(): boolean {
    return this.#intervalMs > this.#options.minMs;
  }

  /**
   * Waits until the next turn may begin.
   * @throws the signal's reason where it is aborted.
   */
  async turn(signal: AbortSignal | undefined): Promise<void> {
    const { clock, minMs, maxMs = minMs } = this.#options;
    signal?.throwIfAborted();
    const waitMs = this.#nextAt - clock.monotonic();
    if (waitMs > 0) {
      await clock.sleep(waitMs, signal);
    }
    this.#nextAt = clock.monotonic() + this.#intervalMs;
    if (this.#freeTurns > 0) {
      this.#freeTurns--;
    } else {
      this.#intervalMs = Math.max(minMs, Math.min(maxMs, this.#intervalMs * 2));
    }
  }

  /** The loop got further: the interval is the shortest again. */
  reset(): void {
    this.#intervalMs = this.#options.minMs;
    this.#freeTurns = this.#options.freeTurns ?? 0;
  }
}
