import type { Clock } from "../clock.ts";

/** The time was up before the answer was whole. */
export class DeadlineExceeded extends Error {
  override readonly name = "DeadlineExceeded";

  constructor(timeoutMs: number) {
    super(`the time for an answer (${timeoutMs / 1_000} s) is up`);
  }
}

/**
 * Bounds every stage of one request, from the credentials to the last byte: by the caller's signal and by one time limit.
 * undici heeds a signal only once a connection stands, and gives each stage a limit of its own.
 */
export class RequestDeadline {
  readonly #caller: AbortSignal | undefined;
  readonly #controller = new AbortController();
  readonly #timeoutMs: number;
  readonly #forward = (): void => this.#controller.abort(this.#caller?.reason);
  #leftMs: number;
  #startedAt = 0;
  readonly #clock: Clock;
  #cancelTimer: (() => void) | undefined;

  /** @param timeoutMs counts from now, in milliseconds */
  constructor(clock: Clock, caller: AbortSignal | undefined, timeoutMs: number) {
    this.#clock = clock;
    this.#caller = caller;
    this.#timeoutMs = timeoutMs;
    this.#leftMs = timeoutMs;
    if (caller?.aborted === true) {
      this.#forward();
    } else {
      caller?.addEventListener("abort", this.#forward, { once: true });
      this.#start();
    }
  }

  /** Aborted by the caller's signal, with its reason, or with {@link DeadlineExceeded}. */
  get signal(): AbortSignal {
    return this.#controller.signal;
  }

  /**
   * Waits for `work` no longer than the signal allows. What it does after that is of no account.
   * @throws the signal's reason
   */
  async race<T>(work: Promise<T>): Promise<T> {
    const { promise, reject } = Promise.withResolvers<never>();
    const { signal } = this.#controller;
    const onAbort = (): void => reject(signal.reason as Error);
    if (signal.aborted) {
      onAbort();
    }
    signal.addEventListener("abort", onAbort, { once: true });
    try {
      return await Promise.race([promise, work]);
    } finally {
      signal.removeEventListener("abort", onAbort);
    }
  }

  /** Like {@link race}, and the time that `work` takes does not count: only the caller's signal ends the wait. */
  async uncounted<T>(work: Promise<T>): Promise<T> {
    this.stopTimer();
    this.#leftMs = Math.max(0, this.#leftMs - (this.#clock.monotonic() - this.#startedAt));
    try {
      return await this.race(work);
    } finally {
      this.#start();
    }
  }

  /** From now on only the caller's signal counts. */
  stopTimer(): void {
    this.#cancelTimer?.();
  }

  /** The request is over, or its stream is. */
  end(): void {
    this.stopTimer();
    this.#caller?.removeEventListener("abort", this.#forward);
  }

  #start(): void {
    this.#startedAt = this.#clock.monotonic();
    const onDue = (): void => this.#controller.abort(new DeadlineExceeded(this.#timeoutMs));
    this.#cancelTimer = this.#clock.timer(this.#leftMs, onDue);
  }
}
