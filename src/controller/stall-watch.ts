import type { Clock } from "../clock.ts";
import { messageOf } from "../errors.ts";
import { failedWebhookOf } from "../old/kube/failure.ts";
import type { PendingRequest } from "../old/kube/pending-requests.ts";
import type { MigrationEvent } from "../old/migrator/events.ts";

/** What keeps a run from getting further, in the words of a condition. */
export interface Stall {
  readonly reason: "WaitingForOthers" | "WaitingForWebhook";
  readonly message: string;
}

/** Failures for so many milliseconds, without any progress, are more than a lost connection. */
const STALLED_AFTER_MS = 3_000;
/**
 * So many milliseconds without an answer are told of before the request fails: the API server itself waits for a webhook
 * for up to 30 s.
 */
const UNANSWERED_AFTER_MS = 5_000;
/** Milliseconds that another try may take until it has failed, too: what did not fail again since has passed. */
const TRY_TAKES_MS = 15_000;
/** What a run tells of that does not show that it gets further. */
const SAYS_NOTHING: ReadonlySet<MigrationEvent["type"]> = new Set(["retrying", "lagging", "contended", "warning"]);

/** Sees whether a run gets further, by what it has to try again. */
export class StallWatch {
  readonly #clock: Clock;
  /** On the monotonic clock. */
  #since = Number.NEGATIVE_INFINITY;
  #last = Number.NEGATIVE_INFINITY;
  /** Until when the last failure counts, where no other try is without an answer. */
  #until = Number.NEGATIVE_INFINITY;
  /** Missing where the run got further since. */
  #failure: { readonly error: unknown } | undefined;
  /** Whether the try after the last failure was without an answer at the last look. */
  #isUnanswered = false;

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  /** Tells of something that failed and is tried again after `delayMs`. */
  failed(error: unknown, delayMs: number): void {
    const now = this.#clock.monotonic();
    const goesOn = this.#failure !== undefined && (now <= this.#until || this.#isUnanswered);
    this.#since = goesOn ? this.#since : now;
    this.#until = now + delayMs + TRY_TAKES_MS;
    this.#last = now;
    this.#failure = { error };
  }

  /** Tells of what the run tells. */
  event({ type }: MigrationEvent): void {
    if (!SAYS_NOTHING.has(type)) {
      this.#failure = undefined;
    }
  }

  /**
   * @param lastProgress when the run last got further, on the monotonic clock
   * @param oldest of its requests the one that is under way for the longest time
   */
  stall(lastProgress: number, oldest?: PendingRequest): Stall | undefined {
    const now = this.#clock.monotonic();
    if (lastProgress >= this.#last) {
      this.#failure = undefined;
    }
    const unanswered =
      oldest !== undefined && now - Math.max(oldest.since, lastProgress) >= UNANSWERED_AFTER_MS ? oldest : undefined;
    this.#isUnanswered = unanswered !== undefined;
    const failure = now <= this.#until || this.#isUnanswered ? this.#failure : undefined;
    if (failure !== undefined && now - Math.max(this.#since, lastProgress) >= STALLED_AFTER_MS) {
      return stallOf(failedWebhookOf(failure.error), messageOf(failure.error));
    }
    const seconds = UNANSWERED_AFTER_MS / 1_000;
    return unanswered && stallOf(undefined, `the API server has not answered ${unanswered.what} for ${seconds} s`);
  }
}

/** The stall by a webhook, or by what else fails. */
export function stallOf(webhook: string | undefined, message: string): Stall {
  return webhook === undefined
    ? { reason: "WaitingForOthers", message }
    : { reason: "WaitingForWebhook", message: `webhook "${webhook}" fails: ${message}` };
}
