import type { KubeObject } from "../kube/client.ts";
import { generationOf, isAsking } from "./generation.ts";

/** How long a {@link Deference} waits, in milliseconds. */
export interface DeferenceTimes {
  /** From the first sight of a newer object to the question; twice as long after each. @default 120000 */
  readonly askAfterMs?: number;
  /** At most. @default 3600000 */
  readonly maxAskAfterMs?: number;
  /** For the answer. @default 30000 */
  readonly answerMs?: number;
}

/** Whether a keeper may write an object. */
export type Standing =
  /** It is not newer than what the keeper wants, or `isOrphan`: it is, and no newer keeper answered. */
  | { readonly kind: "keeps"; readonly isOrphan: boolean }
  /** It is `newer` than what the keeper wants. */
  | { readonly kind: "yields"; readonly newer: number; readonly lookAgainMs: number }
  /** The same, and it is time to ask whether a newer keeper runs. */
  | { readonly kind: "asks"; readonly newer: number };

/**
 * An older keeper leaves an object to a newer one, by the generation that the object is stamped with. Anyone who may patch the object can
 * write that stamp, so it is believed for as long as a newer keeper answers, and no longer: after some minutes the older keeper asks, by an
 * annotation that changes no rule. A newer keeper takes the annotation away. If nothing does, the stamp is that of a version that was
 * rolled back, or another client's, and the older keeper takes the object over.
 *
 * It decides, and acts on nothing: time is passed in.
 */
export class Deference {
  readonly #maxAskAfterMs: number;
  readonly #answerMs: number;
  #askAfterMs: number;
  /** Since when a newer object is seen, or since the last answer. */
  #since: number | undefined;
  /** Since when there is a question. */
  #askedAt: number | undefined;

  constructor({ askAfterMs = 120_000, maxAskAfterMs = 3_600_000, answerMs = 30_000 }: DeferenceTimes = {}) {
    this.#askAfterMs = askAfterMs;
    this.#maxAskAfterMs = maxAskAfterMs;
    this.#answerMs = answerMs;
  }

  /**
   * Where a keeper of that generation stands towards the object as it was read.
   * @param now monotonic, in milliseconds
   */
  standing(live: KubeObject | undefined, own: number, now: number): Standing {
    const newer = live === undefined ? 0 : generationOf(live);
    if (live === undefined || newer <= own) {
      this.#forget();
      return { kind: "keeps", isOrphan: false };
    }
    this.#since ??= now;
    return isAsking(live) ? this.#whileAsking(newer, now) : this.#unasked(newer, this.#since, now);
  }

  /** The question was written. */
  asked(now: number): void {
    this.#askedAt = now;
  }

  #whileAsking(newer: number, now: number): Standing {
    this.#askedAt ??= now;
    const lookAgainMs = this.#askedAt + this.#answerMs - now;
    return lookAgainMs <= 0 ? { kind: "keeps", isOrphan: true } : { kind: "yields", newer, lookAgainMs };
  }

  #unasked(newer: number, since: number, now: number): Standing {
    if (this.#askedAt !== undefined) {
      this.#forget();
      this.#since = now;
      return { kind: "yields", newer, lookAgainMs: this.#askAfterMs };
    }
    const lookAgainMs = since + this.#askAfterMs - now;
    return lookAgainMs <= 0 ? { kind: "asks", newer } : { kind: "yields", newer, lookAgainMs };
  }

  /** What was asked is answered, or no longer matters: the next question comes later. */
  #forget(): void {
    if (this.#askedAt !== undefined) {
      this.#askAfterMs = Math.min(this.#maxAskAfterMs, 2 * this.#askAfterMs);
    }
    this.#since = undefined;
    this.#askedAt = undefined;
  }
}
