/** How long an object may be refused by the authorizer, in milliseconds: one that just started knows no roles yet. */
export const DENIAL_PATIENCE_MS = 15_000;
/** How long a 500 may come from one object, in milliseconds, before it counts as that object's. */
export const FAULT_PATIENCE_MS = 30_000;
/** The same, in milliseconds, while another object's patience was used up in vain a short time ago. */
const AFTERWARDS_MS = 2_000;
/** For so many milliseconds patience that was used up in vain is not granted again. */
const MEMORY_MS = 300_000;
/** So many objects in a row may be given up without one that passes: more of them are an outage. */
const MAX_IN_A_ROW = 10;

/**
 * How long failures are waited for that one object alone may have. Many objects may have the same failure, so the first
 * one waits for all of them: after it was in vain, the others wait for a short time only.
 *
 * All times are of one monotonic clock, in milliseconds.
 */
export class Patience {
  #deniedInVainAt = Number.NEGATIVE_INFINITY;
  #faultInVainAt = Number.NEGATIVE_INFINITY;
  #faultsInARow = 0;
  #progressAtLastFault = Number.NEGATIVE_INFINITY;

  /** Whether an object that the API server has answered with 401 or 403 since then is to be given up. */
  givesUpDenied(since: number, now: number): boolean {
    const isShort = now - this.#deniedInVainAt < MEMORY_MS;
    const isOver = now - since >= (isShort ? 0 : DENIAL_PATIENCE_MS);
    if (isOver && !isShort) {
      this.#deniedInVainAt = now;
    }
    return isOver;
  }

  /**
   * What to think of a 500 that one object has been answered with since then.
   *
   * - `wait`: it may pass
   * - `object`: it is the object's, since other objects passed
   * - `look`: it is the object's if the API server answers a list; no other object was there to tell
   *
   * @param lastProgress when another object last passed
   */
  judgeFault(since: number, now: number, lastProgress: number): "wait" | "object" | "look" {
    const isShort = now - this.#faultInVainAt < MEMORY_MS;
    if (now - since < (isShort ? AFTERWARDS_MS : FAULT_PATIENCE_MS)) {
      return "wait";
    }
    if (lastProgress > since) {
      return "object";
    }
    const inARow = lastProgress > this.#progressAtLastFault ? 0 : this.#faultsInARow;
    return inARow < MAX_IN_A_ROW ? "look" : "wait";
  }

  /** Says that an object was given up because of a 500. */
  gaveUpFault(now: number, lastProgress: number): void {
    this.#faultsInARow = lastProgress > this.#progressAtLastFault ? 1 : this.#faultsInARow + 1;
    this.#progressAtLastFault = lastProgress;
    this.#faultInVainAt = now;
  }
}
