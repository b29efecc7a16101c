import type { Logger } from "pino";
import type { Clock } from "../clock.ts";
import { messageOf } from "../errors.ts";

/** What a {@link FailureLog} needs. */
export interface FailureLogOptions {
  readonly clock: Clock;
  readonly logger: Pick<Logger, "info" | "warn">;
  /** What each line names besides. @default nothing */
  readonly facts?: Readonly<Record<string, string>>;
  /** The message while it fails, such as `Cannot read discovery; trying again`. */
  readonly failing: string;
  /** The message when it works again. */
  readonly working: string;
}

/** Milliseconds between two lines about the same outage: twice as long each time. */
const FIRST_INTERVAL_MS = 10_000;
const MAX_INTERVAL_MS = 600_000;

/**
 * The log of something that is tried again and again: the first failure, further ones at growing intervals with their
 * number, and once that it works again. What fails again within the interval belongs to the same outage.
 */
export class FailureLog {
  readonly #options: FailureLogOptions;
  /** On the monotonic clock. */
  #since = 0;
  #lastAt = Number.NEGATIVE_INFINITY;
  #nextAt = Number.NEGATIVE_INFINITY;
  #intervalMs = FIRST_INTERVAL_MS;
  #failures = 0;
  #isTold = false;

  constructor(options: FailureLogOptions) {
    this.#options = options;
  }

  /** It failed. */
  failed(error: unknown): void {
    const { clock, facts, failing, logger } = this.#options;
    const now = clock.monotonic();
    if (now - this.#lastAt > this.#intervalMs) {
      this.#since = now;
      this.#nextAt = now;
      this.#intervalMs = FIRST_INTERVAL_MS;
      this.#failures = 0;
    }
    this.#lastAt = now;
    this.#failures++;
    if (now < this.#nextAt) {
      return;
    }
    logger.warn({ ...facts, reason: messageOf(error), ...this.#outage(now) }, failing);
    this.#isTold = true;
    this.#nextAt = now + this.#intervalMs;
    this.#intervalMs = Math.min(MAX_INTERVAL_MS, this.#intervalMs * 2);
  }

  /** It works. */
  worked(): void {
    const { clock, facts, logger, working } = this.#options;
    if (this.#isTold) {
      this.#isTold = false;
      logger.info({ ...facts, ...this.#outage(clock.monotonic()) }, working);
    }
  }

  #outage(now: number): { readonly failures: number; readonly seconds: number } {
    return { failures: this.#failures, seconds: Math.round((now - this.#since) / 1_000) };
  }
}
