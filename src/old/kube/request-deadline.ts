import type { Clock } from "../../clock.ts";

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
 *
 * Each request has one, and an AbortSignal costs more than all the rest of it: there is one only where {@link signal} is asked for.
 */
export class RequestDeadline {
  readonly #caller: AbortSignal | undefined;
  readonly #timeoutMs: number;
  readonly #clock: Clock;
  readonly #forward = (): void => this.#expire(this.#caller?.reason as Error);
  #isOver = false;
  #reason: Error | undefined;
  #controller: AbortController | undefined;
  #onOver: ((reason: Error) => void) | undefined;
  /** Rejects what {@link race} waits for. */
  #giveUp: ((reason: Error) => void) | undefined;
  #leftMs: number;
  #startedAt = 0;
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
    if (this.#controller === undefined) {
      this.#controller = new AbortController();
      if (this.#isOver) this.#controller.abort(this.#reason);
    }
    return this.#controller.signal;
  }

  /** Calls `onOver` with the reason once the time is up or the caller gives up: now, where that is so already. Only one is kept. */
  whenOver(onOver: (reason: Error) => void): void {
    if (this.#isOver) {
      onOver(this.#reason as Error);
    } else {
      this.#onOver = onOver;
    }
  }

  /**
   * Waits for `work` no longer than this allows. What it does after that is of no account. The stages of a request follow one another, so
   * only one is waited for at a time.
   * @throws the caller's reason, or {@link DeadlineExceeded}
   */
  async race<T>(work: Promise<T>): Promise<T> {
    return await new Promise((resolve, reject) => {
      this.#giveUp = reject;
      if (this.#isOver) reject(this.#reason);
      work.then(resolve, reject);
    });
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
    this.#onOver = undefined;
    this.#giveUp = undefined;
    this.#caller?.removeEventListener("abort", this.#forward);
  }

  #start(): void {
    this.#startedAt = this.#clock.monotonic();
    this.#cancelTimer = this.#clock.timer(this.#leftMs, () => this.#expire(new DeadlineExceeded(this.#timeoutMs)));
  }

  #expire(reason: Error): void {
    if (this.#isOver) return;
    this.#isOver = true;
    this.#reason = reason;
    this.#controller?.abort(reason);
    this.#onOver?.(reason);
    this.#giveUp?.(reason);
  }
}
