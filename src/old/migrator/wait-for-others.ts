import { KsvmError, messageOf } from "../../errors.ts";
import { askedPauseMs } from "../retry/backoff.ts";
import type { RunContext } from "./run-context.ts";
import type { WaitingForOthers } from "../retry/start-again.ts";

/** What {@link waitForOthers} waits for. */
export interface WaitForOthersOptions {
  /** What is migrated, as a message names it. */
  readonly name: string;
  readonly waiting: WaitingForOthers;
  /** Milliseconds to wait before the first look. */
  readonly atLeastMs: number;
  /** Repeats what an attempt got stuck on. @returns the failure where it still fails */
  readonly probe: (waiting: WaitingForOthers, signal: AbortSignal) => Promise<unknown>;
}

const POLL_MS = 2_000;

/**
 * Waits, without a freeze, until what an attempt got stuck on works again, and looks no sooner than an overloaded API server asks for, but for the last look. The time counts against the budget of the run.
 * @throws {KsvmError} RetryBudgetExceeded after the time that is left, with the last error.
 */
export async function waitForOthers(context: RunContext, options: WaitForOthersOptions): Promise<void> {
  const { clock, emit, retrier, signal } = context;
  const { atLeastMs, name, probe, waiting } = options;
  const { budgetMs, webhook } = waiting;
  const since = clock.monotonic();
  emit({ type: "waiting", reason: waiting.message, budgetMs, ...(webhook === undefined ? {} : { webhook }) });
  await clock.sleep(atLeastMs, signal);
  // What an attempt gets stuck on again and again although the probe passes is not got past by more attempts.
  throwIfSpent(waiting.cause);
  await clock.sleep(Math.max(0, askedMs(waiting.cause, atLeastMs)), signal);
  for (;;) {
    const failure = await probe(waiting, signal);
    if (failure === undefined) {
      return;
    }
    throwIfSpent(failure);
    await clock.sleep(Math.max(POLL_MS, askedMs(failure)), signal);
  }

  /** Up to the last look: an API server may be there again, and a run that has not looked cannot say that it is not. */
  function askedMs(failure: unknown, waitedMs = 0): number {
    return Math.min(askedPauseMs(failure) - waitedMs, retrier.remainingMs(failure, since));
  }

  function throwIfSpent(failure: unknown): void {
    if (retrier.remainingMs(failure, since) <= 0) {
      const text = `Cannot continue with "${name}": what it waited for still fails: ${messageOf(failure)}`;
      throw new KsvmError("RetryBudgetExceeded", text, { cause: failure });
    }
  }
}
