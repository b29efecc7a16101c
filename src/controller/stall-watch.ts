import type { Clock } from "../clock.ts";
import { messageOf } from "../errors.ts";
import { failedWebhookOf } from "../kube/failure.ts";
import type { MigrationEvent } from "../migrator/events.ts";

/** What keeps a run from getting further, in the words of a condition. */
export interface Stall {
  readonly reason: "WaitingForOthers" | "WaitingForWebhook";
  readonly message: string;
}

/** Failures for so many milliseconds, without any progress, are more than a lost connection. */
const STALLED_AFTER_MS = 3_000;
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
  /** Until when the last failure counts. */
  #until = Number.NEGATIVE_INFINITY;
  #error: unknown;

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  /** Tells of something that failed and is tried again after `delayMs`. */
  failed(error: unknown, delayMs: number): void {
    const now = this.#clock.monotonic();
    this.#since = now <= this.#until ? this.#since : now;
    this.#until = now + delayMs + TRY_TAKES_MS;
    this.#last = now;
    this.#error = error;
  }

  /** Tells of what the run tells. */
  event({ type }: MigrationEvent): void {
    if (!SAYS_NOTHING.has(type)) {
      this.#until = Number.NEGATIVE_INFINITY;
    }
  }

  /** @param lastProgress when the run last got further, on the monotonic clock */
  stall(lastProgress: number): Stall | undefined {
    if (lastProgress >= this.#last) {
      this.#until = Number.NEGATIVE_INFINITY;
    }
    const now = this.#clock.monotonic();
    const isStalled = now <= this.#until && now - Math.max(this.#since, lastProgress) >= STALLED_AFTER_MS;
    return isStalled ? stallOf(failedWebhookOf(this.#error), messageOf(this.#error)) : undefined;
  }
}

/** The stall by a webhook, or by what else fails. */
export function stallOf(webhook: string | undefined, message: string): Stall {
  return webhook === undefined
    ? { reason: "WaitingForOthers", message }
    : { reason: "WaitingForWebhook", message: `webhook "${webhook}" fails: ${message}` };
}
