import type { Clock } from "../../clock.ts";
import { KsvmError, messageOf } from "../../errors.ts";
import { failureKindOf } from "../kube/failure.ts";
import type { RetryEvent } from "./events.ts";
import { LoopPace } from "./loop-pace.ts";
import { DENIAL_PATIENCE_MS } from "./patience.ts";

/** One thing that must be undone however a run ends, and what a user can do where that fails. */
interface CleanupStep {
  readonly what: string;
  readonly advice: () => string;
  readonly undo: (signal: AbortSignal) => Promise<void>;
  readonly isHarmless: () => boolean;
}

/** What a {@link Cleanup} needs. */
export interface CleanupContext {
  readonly clock: Clock;
  readonly emit: (event: RetryEvent) => void;
  /** How long what fails for want of an API server is tried again. @default 30 seconds: what is left is swept later */
  readonly cleanupPatience?: CleanupPatience;
}

/** For a process after which no controller sweeps what is left. */
export interface CleanupPatience {
  /** Milliseconds that undoing may take. */
  readonly ms: number;
  /** Aborted when the user wants the run to end: then it has 30 seconds for undoing everything. */
  readonly interrupted: AbortSignal;
}

/** Milliseconds for undoing what a process did that no controller sweeps after: only it lifts its freeze. */
export const ONE_SHOT_CLEANUP_MS = 3_600_000;

/** Milliseconds for undoing everything after an interruption, so that an API server that is gone does not hold Ctrl-C up. */
const INTERRUPTED_MS = 30_000;
/** Between two tries of a step. Each has retried by itself before. */
const AGAIN_PACE = { minMs: 1_000, maxMs: 30_000 } as const;

/**
 * Undoes what a run did, in reverse order, on every way out. One step that fails keeps no other from being tried.
 */
export class Cleanup {
  readonly #steps: CleanupStep[] = [];
  readonly #checks: (() => void)[] = [];
  readonly #context: CleanupContext;

  constructor(context: CleanupContext) {
    this.#context = context;
  }

  /**
   * Adds a step. `what` completes "Cannot …", `advice` says how to do it by hand, once it failed.
   * @param options `isHarmless`: what stays ends by itself, so a failure is a warning and fails no run. @default it never is
   */
  defer(
    what: string,
    advice: string | (() => string),
    undo: (signal: AbortSignal) => Promise<void>,
    { isHarmless = () => false }: { readonly isHarmless?: () => boolean } = {},
  ): void {
    this.#steps.push({ what, advice: typeof advice === "string" ? () => advice : advice, undo, isHarmless });
  }

  /** Adds a check of what the steps showed, which throws where the result of the work is not to be told. */
  check(check: () => void): void {
    this.#checks.push(check);
  }

  /**
   * Runs `work` and then every step. A step gets a signal of its own: the run's may be aborted already.
   * @throws what `work` throws, else {KsvmError} CleanupFailed where a step failed, else what a check throws; a step that failed beside an error
   *   of `work` is reported as a warning.
   */
  async after<T>(work: () => Promise<T>): Promise<T> {
    let result: T;
    try {
      result = await work();
    } catch (error) {
      for (const problem of await this.#undoAll()) {
        this.#context.emit({ type: "warning", message: problem });
      }
      throw error;
    }
    const problems = await this.#undoAll();
    if (problems.length > 0) {
      throw new KsvmError("CleanupFailed", problems.join("; "));
    }
    for (const check of this.#checks) {
      check();
    }
    return result;
  }

  async #undoAll(): Promise<readonly string[]> {
    const limit = limitOf(this.#context);
    const problems: string[] = [];
    for (const step of this.#steps.toReversed()) {
      try {
        await this.#undo(step, limit.signal);
      } catch (error) {
        const problem = `Cannot ${step.what}: ${messageOf(error)}; ${step.advice()}`;
        if (step.isHarmless()) {
          this.#context.emit({ type: "warning", message: problem });
        } else {
          problems.push(problem);
        }
      }
    }
    limit.end();
    return problems;
  }

  /** Again and again, where the API server is what fails. */
  async #undo({ what, undo }: CleanupStep, signal: AbortSignal): Promise<void> {
    const { clock, emit } = this.#context;
    const pace = new LoopPace({ clock, ...AGAIN_PACE });
    let refusedSince: number | undefined;
    for (let tries = 1; ; tries++) {
      try {
        return await undo(signal);
      } catch (error) {
        const now = clock.monotonic();
        refusedSince = isRefusal(error) ? (refusedSince ?? now) : undefined;
        const isPassing = refusedSince === undefined ? mayPassLater(error) : now - refusedSince < DENIAL_PATIENCE_MS;
        if (signal.aborted || !isPassing) {
          throw error;
        }
        if (tries === 1) {
          emit({ type: "warning", message: `Cannot ${what} yet: ${messageOf(error)}; trying again until it works` });
        }
        // The first turn does not wait.
        await pace.turn(signal);
      }
    }
  }
}

function mayPassLater(error: unknown): boolean {
  return failureKindOf(error) === "transient" || (error instanceof KsvmError && error.code === "RetryBudgetExceeded");
}

/**
 * An API server that has just started knows no roles yet, and a proxy may have no API server behind it, or refuse by a page of its
 * own. What an API server does not take for good costs as long: a freeze that stays costs more.
 */
function isRefusal(error: unknown): boolean {
  const cause = error instanceof KsvmError && error.code === "OwnershipLost" ? error.cause : error;
  const kind = failureKindOf(cause);
  return kind === "denied" || kind === "unserved" || kind === "rejected";
}

/** A signal that is aborted when the patience is over, or a while after an interruption. */
function limitOf({ clock, cleanupPatience: patience }: CleanupContext): {
  readonly signal: AbortSignal;
  end: () => void;
} {
  const limit = new AbortController();
  const timeUp = (): void => limit.abort(new KsvmError("ServerUnreachable", "no time is left for cleaning up"));
  let cancel = clock.timer(patience?.ms ?? INTERRUPTED_MS, timeUp);
  const hurry = (): void => {
    cancel();
    cancel = clock.timer(INTERRUPTED_MS, timeUp);
  };
  if (patience?.interrupted.aborted === true) {
    hurry();
  }
  patience?.interrupted.addEventListener("abort", hurry, { once: true });
  const end = (): void => {
    cancel();
    patience?.interrupted.removeEventListener("abort", hurry);
  };
  return { signal: limit.signal, end };
}
