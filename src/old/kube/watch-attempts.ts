import type { Clock } from "../../clock.ts";

/** How a watch is opened again, and who is told. */
export interface WatchAttemptsOptions {
  /** Milliseconds from an attempt that worked to the next. @default 500 */
  readonly retryMs?: number;
  /** Called when the API server has begun to answer. */
  readonly onOpen?: () => void;
  /** Told of each attempt that failed: see {@link WatchAttempts.failed}. */
  readonly onFailure?: (error: unknown) => void;
}

const RETRY_MS = 500;
/** Milliseconds. A run gives the watch of its CRD 30 s to catch up, which takes more than one attempt. */
const MAX_RETRY_MS = 10_000;

/**
 * The attempts to open a watch. The pause after one that failed is twice as long as the pause before it, up to 10 s. An
 * attempt has worked where an event came, or where the watch was open for 10 s: then nothing happened.
 */
export class WatchAttempts {
  readonly #clock: Clock;
  readonly #options: WatchAttemptsOptions;
  readonly #minMs: number;
  #nextMs: number;
  /** On the monotonic clock. */
  #openedAt = Number.POSITIVE_INFINITY;
  #hasHeard = false;

  constructor(clock: Clock, options: WatchAttemptsOptions) {
    this.#clock = clock;
    this.#options = options;
    this.#minMs = options.retryMs ?? RETRY_MS;
    this.#nextMs = this.#minMs;
  }

  /** The API server has begun to answer. */
  readonly opened = (): void => {
    this.#openedAt = this.#clock.monotonic();
    this.#options.onOpen?.();
  };

  /** An event or a bookmark came. */
  heard(): void {
    this.#hasHeard = true;
  }

  /** The attempt ended with an error. A watch that worked and was cut then is opened again without a word. */
  failed(error: unknown): void {
    if (!this.#hasWorked()) {
      this.#options.onFailure?.(error);
    }
  }

  /** Waits until the next attempt may begin, or until the signal is aborted. */
  async pause(signal: AbortSignal): Promise<void> {
    const pauseMs = this.#hasWorked() ? this.#minMs : this.#nextMs;
    this.#nextMs = Math.max(this.#minMs, Math.min(MAX_RETRY_MS, pauseMs * 2));
    this.#openedAt = Number.POSITIVE_INFINITY;
    this.#hasHeard = false;
    await this.#clock.sleep(pauseMs, signal).catch(() => undefined);
  }

  #hasWorked(): boolean {
    return this.#hasHeard || this.#clock.monotonic() - this.#openedAt >= MAX_RETRY_MS;
  }
}
