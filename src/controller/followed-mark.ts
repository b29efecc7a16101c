import type { Logger } from "pino";
import { SYSTEM_NAMESPACE } from "../api/migration.ts";
import type { Clock } from "../clock.ts";
import type { ApiClient } from "../kube/client.ts";
import { failureKindOf } from "../kube/failure.ts";
import { DENIAL_PATIENCE_MS } from "../retry/patience.ts";
import { FailureLog } from "../observability/failure-log.ts";
import { followSuspendMark, type SuspendMark } from "../suspend/suspend-mark.ts";

/** What a {@link FollowedMark} needs. */
export interface FollowedMarkOptions {
  readonly client: ApiClient;
  readonly clock: Clock;
  readonly logger: Logger;
  /** Where the Lease is that suspends all migrations. @default {@link SYSTEM_NAMESPACE} */
  readonly namespace?: string;
  /** Told whenever the mark has changed, and about once a minute. */
  readonly onChange: () => void;
}

/** What waits for a change, as a status that was refused does, is tried again after so many milliseconds without one. */
const TELL_EVERY_MS = 60_000;

/** What suspends all migrations, as the controller knows it. */
export class FollowedMark {
  readonly #options: FollowedMarkOptions;
  /** `null` until that is known. */
  #mark: SuspendMark | null | undefined = null;
  readonly #failures: FailureLog;
  #deniedSince: number | undefined;
  #toldAt = Number.NEGATIVE_INFINITY;

  constructor(options: FollowedMarkOptions) {
    this.#options = options;
    this.#failures = new FailureLog({
      ...options,
      failing: "Cannot see whether all migrations are suspended; trying again",
      working: "Can see again whether all migrations are suspended",
    });
  }

  /** Nothing begins, and nothing is said of the queue, before this is so. */
  get isKnown(): boolean {
    return this.#mark !== null;
  }

  /** `undefined` where nothing suspends all migrations, or that is not known yet. */
  get mark(): SuspendMark | undefined {
    return this.#mark ?? undefined;
  }

  /** Follows it until the signal is aborted. @param clock what it waits by */
  run(signal: AbortSignal, clock: Clock = this.#options.clock): Promise<void> {
    const { namespace = SYSTEM_NAMESPACE } = this.#options;
    const onMark = (mark: SuspendMark | undefined): void => {
      this.#failures.worked();
      this.#set(mark);
    };
    const onError = (error: unknown): void => this.#failed(error);
    return followSuspendMark({ ...this.#options, clock, namespace, onMark, onError, signal });
  }

  #set(mark: SuspendMark | undefined): void {
    const { clock, logger, onChange } = this.#options;
    const isNew = !this.isKnown || !isSameMark(this.mark, mark);
    if (mark !== undefined && this.mark?.since !== mark.since) {
      logger.warn({ ...mark }, "All migrations are suspended");
    } else if (mark === undefined && this.mark !== undefined) {
      logger.info("Migrations are no longer suspended all together");
    }
    this.#mark = mark;
    if (isNew || clock.monotonic() - this.#toldAt >= TELL_EVERY_MS) {
      this.#toldAt = clock.monotonic();
      onChange();
    }
  }

  #failed(error: unknown): void {
    const { clock } = this.#options;
    this.#failures.failed(error);
    this.#deniedSince = failureKindOf(error) === "denied" ? (this.#deniedSince ?? clock.monotonic()) : undefined;
    const isDenied = this.#deniedSince !== undefined && clock.monotonic() - this.#deniedSince >= DENIAL_PATIENCE_MS;
    if (!this.isKnown && isDenied) {
      // Where Leases of ours cannot be listed, none of them can suspend anything: migrations go on as they did. An API
      // server that has just started denies for a moment what it allows.
      this.#set(undefined);
    }
  }
}

function isSameMark(a: SuspendMark | undefined, b: SuspendMark | undefined): boolean {
  return a?.since === b?.since && a?.by === b?.by;
}
