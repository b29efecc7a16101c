import type { ApiServers } from "../apiservers/api-servers.ts";
import { Cleanup } from "../retry/cleanup.ts";
import {
  MissingApiServer,
  type MissingBudget,
  newMissingBudget,
  waitForApiServers,
} from "../apiservers/missing-api-server.ts";
import { reportOverdue } from "../apiservers/overdue-leases.ts";
import { RunBudget } from "../retry/run-budget.ts";
import type { RunContext } from "./run-context.ts";
import { StartAgain, WaitingForOthers } from "../retry/start-again.ts";
import { waitForOthers } from "./wait-for-others.ts";

/** The default of `--max-freeze-idle`, in milliseconds. */
export const DEFAULT_MAX_FREEZE_IDLE_MS = 300_000;

/** A run that is made of attempts, each of which begins at step 1. */
export interface UntilDoneOptions<T> {
  readonly context: RunContext;
  /** What is migrated, as a message names it. */
  readonly name: string;
  /** Milliseconds without progress after which an attempt is broken off. @default never: it holds no freeze */
  readonly maxFreezeIdleMs?: number;
  /** One attempt. What it defers is undone when it ends, however it ends. */
  readonly attempt: (context: RunContext, cleanup: Cleanup) => Promise<T>;
  /** Repeats what an attempt got stuck on. @returns the failure where it still fails */
  readonly probe: (waiting: WaitingForOthers, signal: AbortSignal) => Promise<unknown>;
  /** Told of every error that ended an attempt, before anything else is done about it. */
  readonly onError?: (error: unknown) => Promise<void>;
}

/** How often a run begins again at step 1 because what it rested on was not true all along. */
const MAX_STARTS = 5;

/**
 * The attempts of a run, one after the other: it begins again at step 1 where it has to, and waits between two attempts
 * for what it got stuck on, and before each of them until every API server can be asked. The retry budget is one for all
 * of them, and so is the time for API servers that can be found and then do not answer.
 * @throws what ended the last attempt; {KsvmError} RetryBudgetExceeded where it was waited for too long.
 */
export async function runUntilDone<T>(options: UntilDoneOptions<T>): Promise<T> {
  const { context, name, probe } = options;
  const budget = new RunBudget();
  const retrier = context.retrier.with({ budget });
  const missing = newMissingBudget();
  for (let starts = 1; ; ) {
    const apiServers = await waitForApiServers(context, missing);
    const startedAt = context.clock.monotonic();
    try {
      return await attemptOnce(options, { ...context, budget, retrier }, apiServers);
    } catch (error) {
      await options.onError?.(error);
      if (error instanceof WaitingForOthers) {
        const atLeastMs = budget.brokenOff();
        await waitForOthers({ ...context, retrier }, { name, waiting: error, atLeastMs, probe });
        await context.awaitTurn?.();
      } else if (error instanceof MissingApiServer && missing.leftMs > 0) {
        context.emit({ type: "startingAgain", reason: error.message });
        missing.leftMs -= Math.min(MAX_ASKING_MS, context.clock.monotonic() - startedAt);
        await pause(context, missing, budget.brokenOff());
      } else if (error instanceof StartAgain && starts < MAX_STARTS) {
        starts++;
        context.emit({ type: "startingAgain", reason: error.message });
      } else {
        throw error;
      }
    }
  }
}

/**
 * An attempt that ends because an API server does not answer waited for it no longer than this, in milliseconds; before that
 * it may have worked for hours, which are not charged.
 */
const MAX_ASKING_MS = 600_000;
/** Between two attempts where API servers come and go, in milliseconds. */
const MISSING_PAUSE_MS = 5_000;

async function pause({ clock, signal }: RunContext, missing: MissingBudget, atLeastMs: number): Promise<void> {
  const ms = Math.max(MISSING_PAUSE_MS, atLeastMs);
  missing.leftMs -= ms;
  await clock.sleep(ms, signal);
}

async function attemptOnce<T>(
  { attempt, maxFreezeIdleMs }: UntilDoneOptions<T>,
  context: RunContext,
  { identities = [] }: ApiServers,
): Promise<T> {
  const { isPlaceWanted } = context;
  const limits = {
    ...(maxFreezeIdleMs === undefined ? {} : { maxFreezeIdleMs }),
    ...(isPlaceWanted === undefined ? {} : { isPlaceWanted }),
  };
  const cleanup = new Cleanup(context);
  const over = new AbortController();
  const reporting = reportOverdue(context, identities, over.signal);
  try {
    return await cleanup.after(() => attempt({ ...context, retrier: context.retrier.with(limits) }, cleanup));
  } finally {
    over.abort();
    await reporting;
  }
}
