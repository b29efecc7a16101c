import type { Logger } from "pino";
import type { Clock } from "../../clock.ts";
import { messageOf } from "../../errors.ts";
import { LoopPace } from "./loop-pace.ts";
import { FailureLog } from "../../observability/failure-log.ts";
import { ApiError } from "../kube/errors.ts";
import { failureKindOf } from "../kube/failure.ts";

/** What a {@link FollowPace} needs. */
export interface FollowPaceOptions {
  readonly clock: Clock;
  readonly logger: Logger;
  /** What is followed, in the plural. */
  readonly what: string;
  /** What it costs that this user may not list or watch them, for the log. */
  readonly cost: string;
  /** The same where it may not even list them. @default the cost */
  readonly costOfList?: string | undefined;
}

/** Between two tries, in milliseconds: an outage ends any moment, a missing right does not. */
const MIN_INTERVAL_MS = 2_000;
const MAX_INTERVAL_MS = 10_000;
/** The same while a right is missing, or the resource is not served. */
const MAX_SLOW_INTERVAL_MS = 60_000;

/** How fast a loop goes that lists a resource and watches it, again and again, and what it says about failures. */
export class FollowPace {
  readonly #options: FollowPaceOptions;
  readonly #pace: LoopPace;
  readonly #slow: LoopPace;
  readonly #failures: FailureLog;
  #isSlow = false;
  /** The refusal that was logged: it is said once. */
  #told: string | undefined;

  constructor(options: FollowPaceOptions) {
    const { clock, logger, what } = options;
    this.#options = options;
    this.#pace = new LoopPace({ clock, minMs: MIN_INTERVAL_MS, maxMs: MAX_INTERVAL_MS });
    this.#slow = new LoopPace({ clock, minMs: MIN_INTERVAL_MS, maxMs: MAX_SLOW_INTERVAL_MS });
    this.#failures = new FailureLog({
      clock,
      logger,
      facts: { resource: what },
      failing: "Cannot follow a resource; trying again",
      working: "Following a resource again",
    });
  }

  /**
   * Waits until the next try may begin.
   * @throws the signal's reason where it is aborted.
   */
  async turn(signal: AbortSignal): Promise<void> {
    await (this.#isSlow ? this.#slow : this.#pace).turn(signal);
  }

  /** The API server lets it be watched. */
  opened(): void {
    this.#failures.worked();
    if (this.#told !== undefined) {
      this.#options.logger.info({ resource: this.#options.what }, "Can list and watch a resource now");
    }
    this.#told = undefined;
    this.#isSlow = false;
    this.#slow.reset();
  }

  /** The watch tells of something. One that opens and ends again and again does not. */
  heard(): void {
    this.#pace.reset();
  }

  /** The API server does not serve it. It may do so one day. */
  unserved(): void {
    this.#isSlow = true;
  }

  /** It could not be listed or watched. */
  failed(error: unknown): void {
    const { logger, what } = this.#options;
    const reason = messageOf(error);
    this.#isSlow = failureKindOf(error) === "denied";
    if (!this.#isSlow) {
      this.#failures.failed(error);
    } else if (this.#told !== reason) {
      this.#told = reason;
      logger.warn(
        { resource: what, reason, effect: this.#costOf(error) },
        "Not allowed to list and watch a resource; trying again about once a minute",
      );
    }
  }

  #costOf(error: unknown): string {
    const { cost, costOfList = cost } = this.#options;
    // The authorizer always says what may not be done.
    return error instanceof ApiError && error.said.includes(" cannot list ") ? costOfList : cost;
  }
}
