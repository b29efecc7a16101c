import { KsvmError, messageOf } from "../errors.ts";
import type { EventSink } from "./events.ts";

/** One thing that must be undone however a run ends, and what a user can do where that fails. */
interface CleanupStep {
  readonly what: string;
  readonly advice: string;
  readonly undo: (signal: AbortSignal) => Promise<void>;
}

/** Milliseconds for undoing everything, so that an API server that is gone does not hold Ctrl-C up for ever. */
const CLEANUP_TIMEOUT_MS = 30_000;

/**
 * Undoes what a run did, in reverse order, on every way out. One step that fails keeps no other from being tried.
 */
export class Cleanup {
  readonly #steps: CleanupStep[] = [];
  readonly #emit: EventSink;

  constructor(emit: EventSink) {
    this.#emit = emit;
  }

  /** Adds a step. `what` completes "Cannot …", `advice` says how to do it by hand. */
  defer(what: string, advice: string, undo: (signal: AbortSignal) => Promise<void>): void {
    this.#steps.push({ what, advice, undo });
  }

  /**
   * Runs `work` and then every step. A step gets a signal of its own: the run's may be aborted already.
   * @throws what `work` throws, else {KsvmError} CleanupFailed where a step failed; a step that failed beside an error
   *   of `work` is reported as a warning.
   */
  async after<T>(work: () => Promise<T>): Promise<T> {
    let result: T;
    try {
      result = await work();
    } catch (error) {
      for (const problem of await this.#undoAll()) {
        this.#emit({ type: "warning", message: problem });
      }
      throw error;
    }
    const problems = await this.#undoAll();
    if (problems.length > 0) {
      throw new KsvmError("CleanupFailed", problems.join("; "));
    }
    return result;
  }

  async #undoAll(): Promise<readonly string[]> {
    const signal = AbortSignal.timeout(CLEANUP_TIMEOUT_MS);
    const problems: string[] = [];
    for (const step of this.#steps.toReversed()) {
      try {
        await step.undo(signal);
      } catch (error) {
        problems.push(`Cannot ${step.what}: ${messageOf(error)}; ${step.advice}`);
      }
    }
    return problems;
  }
}
