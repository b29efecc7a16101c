import type { Clock } from "../../clock.ts";
import type { Disagreement } from "./encryption-agreement.ts";

/** So long a failure stands for other looks, in milliseconds. */
const RECENT_MS = 4_000;

/**
 * What the last look at the encryption found, where it failed. Shortly after, it stands for the looks of others: many migrations
 * may wait for the same API server, and must not keep it busy with its metrics.
 */
export class RecentFailure {
  #last: { readonly disagreement: Disagreement; readonly at: number } | undefined;

  /** Notes what a look found. */
  note(disagreement: Disagreement, clock: Clock): void {
    this.#last = { disagreement, at: clock.monotonic() };
  }

  /** `undefined` where the API servers are to be asked. */
  recall(clock: Clock): Disagreement | undefined {
    return this.#last !== undefined && clock.monotonic() - this.#last.at < RECENT_MS
      ? this.#last.disagreement
      : undefined;
  }
}
