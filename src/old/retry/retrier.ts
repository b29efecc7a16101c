import type { Clock } from "../../clock.ts";
import { KsvmError, messageOf } from "../../errors.ts";
import { ApiError } from "../kube/errors.ts";
import { failedWebhookOf, failureKindOf } from "../kube/failure.ts";
import { backoffMs } from "./backoff.ts";
import { LoopPace, type LoopPaceOptions } from "./loop-pace.ts";
import type { NamedObject } from "../kube/named-object.ts";
import type { RunBudget } from "./run-budget.ts";
import { WaitingForOthers } from "./start-again.ts";

/** The default of `--max-idle`: milliseconds without progress after which a run fails. */
export const DEFAULT_MAX_IDLE_MS = 900_000;

/** The default of `--webhook-wait`: the same in milliseconds if a webhook of another client is what fails. */
export const DEFAULT_WEBHOOK_WAIT_MS = 3_600_000;

/** How a {@link Retrier} waits. */
export interface RetrierOptions {
  readonly clock: Clock;
  /** Returns a number from 0 up to but not including 1. */
  readonly random: () => number;
  /** Milliseconds without any progress after which a run gives up. @default {@link DEFAULT_MAX_IDLE_MS} */
  readonly maxIdleMs?: number;
  /** The same if a webhook of another client is what fails. @default {@link DEFAULT_WEBHOOK_WAIT_MS} */
  readonly webhookWaitMs?: number;
  /**
   * Milliseconds without any progress after which an attempt is broken off, so that its freeze is lifted until it can continue.
   * @default none
   */
  readonly maxFreezeIdleMs?: number;
  /** Whether other work waits for the place of this one: it is broken off sooner then. @default none does */
  readonly isPlaceWanted?: () => boolean;
  /** Sums up what failures cost over all attempts of a run. @default each operation counts for itself */
  readonly budget?: RunBudget;
  /** Told of every failure that is retried, and of the object whose request failed, where it was one's. */
  readonly onRetry?: (error: unknown, delayMs: number, object?: NamedObject) => void;
}

/** How far a piece of work is in being retried. */
export interface RetryState {
  /** 0 after the first failure. */
  readonly attempt: number;
  /** When it first failed, on the monotonic clock. */
  readonly since: number;
  /** Whose request it is. @default no object's */
  readonly object?: NamedObject;
}

/**
 * An operation has failed for so many milliseconds, or for the whole budget where that is less, before what others cost
 * the run counts as well: one lost connection right after a long wait ends no run.
 */
const BLIP_MS = 5_000;

/** Milliseconds without progress after which a run that others wait for is broken off, to wait without its place. */
const YIELD_AFTER_MS = 10_000;

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

  /** The pace of a loop by the same clock. */
  pace(limits: Omit<LoopPaceOptions, "clock">): LoopPace {
    return new LoopPace({ clock: this.#options.clock, ...limits });
  }

  /** When the run last got further, on the monotonic clock. */
  get lastProgress(): number {
    return this.#progress.last;
  }

  /** A number from 0 up to but not including 1. */
  random(): number {
    return this.#options.random();
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
   * Waits before another attempt, and no longer than a freeze may be held.
   * @throws as {@link run} where the budget is used up.
   */
  async pause(error: unknown, state: RetryState, signal: AbortSignal | undefined): Promise<void> {
    const { clock, random, onRetry } = this.#options;
    this.#throwIfSpent(error, state.since);
    const retryAfter = error instanceof ApiError ? error.retryAfter : undefined;
    const delay = backoffMs(state.attempt, random(), retryAfter);
    onRetry?.(error, delay, state.object);
    for (let leftMs = delay; ; ) {
      const ms = Math.min(leftMs, Math.ceil(this.#freezeLeftMs(state.since)));
      await clock.sleep(ms, signal);
      leftMs -= ms;
      // Asked in any case: the wait counts, also where the next attempt is answered.
      const isFreezeOver = this.#freezeLeftMs(state.since) <= 0;
      if (leftMs <= 0) {
        return;
      }
      if (isFreezeOver) {
        this.#throwIfSpent(error, state.since);
      }
    }
  }

  /**
   * Milliseconds that may still be waited for something that has failed since `since`, and failed with `error` now; 0 or
   * less where the budget is used up.
   */
  remainingMs(error: unknown, since: number): number {
    const { budget, clock } = this.#options;
    const budgetMs = this.#budgetMs(error);
    const from = Math.max(this.#progress.last, since);
    const now = clock.monotonic();
    const stuckMs = now - from;
    if (budget === undefined) {
      return budgetMs - stuckMs;
    }
    const cause = failedWebhookOf(error) === undefined ? "other" : "webhook";
    budget.idled(cause, from, now);
    const isBlip = stuckMs < Math.min(BLIP_MS, budgetMs);
    return budgetMs - (isBlip ? stuckMs : Math.max(stuckMs, budget.idleMs(cause)));
  }

  /**
   * Tells that a request which others retry has failed since `since`: where a freeze is held, that counts.
   * @throws {WaitingForOthers} where an attempt must not hold its freeze any longer.
   */
  stuck(error: unknown, since: number): void {
    if (this.#freezeLeftMs(since) <= 0) {
      throw new WaitingForOthers(error, this.remainingMs(error, since));
    }
  }

  #throwIfSpent(error: unknown, since: number): void {
    const remainingMs = this.remainingMs(error, since);
    if (remainingMs <= 0) {
      const seconds = Math.round(this.#budgetMs(error) / 1_000);
      const text = `Cannot continue: no progress for ${seconds} s, last error: ${messageOf(error)}`;
      throw new KsvmError("RetryBudgetExceeded", text, { cause: error });
    }
    if (this.#freezeLeftMs(since) <= 0 || this.#mustYield(since)) {
      throw new WaitingForOthers(error, remainingMs);
    }
  }

  /** Milliseconds for which an attempt may still hold its freeze while what has failed since `since` is tried again. */
  #freezeLeftMs(since: number): number {
    const { budget, clock, maxFreezeIdleMs } = this.#options;
    if (maxFreezeIdleMs === undefined) {
      return Number.POSITIVE_INFINITY;
    }
    const from = Math.max(this.#progress.last, since);
    const now = clock.monotonic();
    budget?.heldFreeze(from, now);
    const stuckMs = now - from;
    const blipLeftMs = Math.min(BLIP_MS, maxFreezeIdleMs) - stuckMs;
    return Math.max(blipLeftMs, maxFreezeIdleMs - Math.max(stuckMs, budget?.frozenMs ?? 0));
  }

  #mustYield(since: number): boolean {
    const { clock, isPlaceWanted } = this.#options;
    const isStuck = clock.monotonic() - Math.max(this.#progress.last, since) >= YIELD_AFTER_MS;
    return isStuck && isPlaceWanted?.() === true;
  }

  #budgetMs(error: unknown): number {
    const { maxIdleMs = DEFAULT_MAX_IDLE_MS, webhookWaitMs = DEFAULT_WEBHOOK_WAIT_MS } = this.#options;
    return failedWebhookOf(error) === undefined ? maxIdleMs : webhookWaitMs;
  }
}
