import type { Clock } from "../clock.ts";
import { KsvmError, messageOf } from "../errors.ts";
import { ApiError } from "../kube/errors.ts";
import { failedWebhookOf, failureKindOf } from "../kube/failure.ts";
import { backoffMs } from "./backoff.ts";
import { WaitingForOthers } from "./start-again.ts";

/** How a {@link Retrier} waits. */
export interface RetrierOptions {
  readonly clock: Clock;
  /** Returns a number from 0 up to but not including 1. */
  readonly random: () => number;
  /** Milliseconds without any progress after which a run gives up. @default 900000 (15 minutes) */
  readonly maxIdleMs?: number;
  /** The same where somebody else's webhook is what fails. @default 3600000 (1 hour) */
  readonly webhookWaitMs?: number;
  /**
   * Milliseconds without any progress after which an attempt is broken off, so that its freeze is lifted meanwhile.
   * @default none
   */
  readonly maxFreezeIdleMs?: number;
  /** Told of every failure that is retried. */
  readonly onRetry?: (error: unknown, delayMs: number) => void;
}

/** How far a piece of work is in being retried. */
export interface RetryState {
  /** 0 after the first failure. */
  readonly attempt: number;
  /** When it first failed, on the monotonic clock. */
  readonly since: number;
}

/**
 * Retries what may pass later, over a whole run: the budget is time without progress anywhere, not a count for each
 * request, so that a long outage ends the run once and a slow server never does.
 */
export class Retrier {
  readonly #options: RetrierOptions;
  readonly #progress: { last: number };

  constructor(options: RetrierOptions, progress = { last: options.clock.monotonic() }) {
    this.#options = options;
    this.#progress = progress;
  }

  /** One that shares this one's progress and differs in some options. */
  with(changes: Partial<RetrierOptions>): Retrier {
    return new Retrier({ ...this.#options, ...changes }, this.#progress);
  }

  /** When the run last got further, on the monotonic clock. */
  get lastProgress(): number {
    return this.#progress.last;
  }

  /** Says that the run got further. */
  progressed(): void {
    this.#progress.last = this.#options.clock.monotonic();
  }

  /**
   * Runs `operation` until it ends in something else than a transient failure.
   * @throws {KsvmError} RetryBudgetExceeded, with the last error, after too long without progress.
   * @throws {WaitingForOthers} where an attempt must not hold its freeze any longer.
   * @throws whatever else `operation` throws; the signal's reason where it was aborted.
   */
  async run<T>(operation: () => Promise<T>, signal: AbortSignal | undefined): Promise<T> {
    let since: number | undefined;
    for (let attempt = 0; ; attempt++) {
      try {
        return await operation();
      } catch (error) {
        if (failureKindOf(error) !== "transient") {
          throw error;
        }
        since ??= this.#options.clock.monotonic();
        await this.pause(error, { attempt, since }, signal);
      }
    }
  }

  /**
   * Waits before another attempt.
   * @throws as {@link run} where the budget is used up.
   */
  async pause(error: unknown, state: RetryState, signal: AbortSignal | undefined): Promise<void> {
    const { clock, random, onRetry } = this.#options;
    const idleMs = clock.monotonic() - Math.max(this.#progress.last, state.since);
    this.#throwIfSpent(error, idleMs);
    const retryAfter = error instanceof ApiError ? error.retryAfterSeconds : undefined;
    const delay = backoffMs(state.attempt, random(), retryAfter);
    onRetry?.(error, delay);
    await clock.sleep(delay, signal);
  }

  #throwIfSpent(error: unknown, idleMs: number): void {
    const { maxIdleMs = 900_000, webhookWaitMs = 3_600_000, maxFreezeIdleMs } = this.#options;
    const budgetMs = failedWebhookOf(error) === undefined ? maxIdleMs : webhookWaitMs;
    if (idleMs >= budgetMs) {
      const text = `Cannot go on: no progress for ${Math.round(budgetMs / 1_000)} s, last error: ${messageOf(error)}`;
      throw new KsvmError("RetryBudgetExceeded", text, { cause: error });
    }
    if (maxFreezeIdleMs !== undefined && idleMs >= maxFreezeIdleMs) {
      throw new WaitingForOthers(error, budgetMs - idleMs);
    }
  }
}
