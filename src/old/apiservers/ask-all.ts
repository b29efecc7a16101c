import type { Clock } from "../../clock.ts";
import { type KsvmError, messageOf } from "../../errors.ts";
import type { ApiClient } from "../kube/client.ts";
import { TransportError } from "../kube/errors.ts";
import { failureKindOf } from "../kube/failure.ts";
import { askedPauseMs } from "../retry/backoff.ts";
import type { ApiServers } from "./api-servers.ts";

/** Why an API server does not yet show what it should. */
export interface CheckFailure {
  readonly reason: string;
  /** Whether it did not answer at all. */
  readonly silent: boolean;
  /** Whether one that did not answer answers other requests: then it lives, and something that it calls hangs. */
  readonly lives?: boolean;
  /** The request that failed, where one did. */
  readonly cause?: unknown;
}

/** Looks at one API server; `undefined` where it shows what it should. */
export type Check = (client: ApiClient) => Promise<CheckFailure | undefined>;

/** How API servers are asked. */
export interface AskOptions {
  readonly clock: Clock;
  /** Milliseconds that they may take. */
  readonly timeoutMs: number;
  /** Milliseconds over which samples are spread, where the API servers can only be sampled. */
  readonly spreadMs: number;
  readonly signal: AbortSignal;
  /** Called with each failure that is waited for. */
  readonly onFailure?: (server: string, failure: CheckFailure) => void;
  /** Called whenever one does not answer, or not within five seconds, however the asking ends. @default nobody is told */
  readonly onSilence?: () => void;
  /** Called whenever one answers and does not pass, or has not answered where `signal` is aborted. @default nobody is told */
  readonly onLag?: () => void;
  /** The error for an API server that failed to the end; `silent` where it answers nothing else either. */
  readonly errorOf: (server: string, reason: string, silent: boolean) => KsvmError;
}

/** What became apparent while they were asked. */
export interface AskResult {
  /** Whether one of them answered and did not pass. */
  readonly lagged: boolean;
  /** Whether one of them did not answer, or not within five seconds. */
  readonly silent: boolean;
  /** Where `lagged` is due to requests that failed alone, the last of them: no API server showed anything else. */
  readonly failed?: CheckFailure;
}

/**
 * So many new connections must agree where API servers can only be sampled. With two API servers behind a load balancer
 * that chooses at random, one that differs is missed once in a million times.
 */
export const SAMPLES = 20;
const POLL_MS = 250;
/** How soon a check that fails is repeated at first; it doubles up to {@link POLL_MS}. An API server takes up to a second to see a policy. */
const FIRST_POLL_MS = 50;
/** An API server that does not pass for so long may take minutes, as one does that waits for its upgrade, in milliseconds. */
const PROMPT_MS = 10_000;
/** How often it is asked from then on. */
const LATE_POLL_MS = 1_000;
/**
 * After so many samples a count that a failure ends starts again at half the pace. Each count takes several new connections: where one
 * request in fourteen failed, 45 requests in a second were sent for as long as that lasted.
 */
const PROMPT_SAMPLES = 5 * SAMPLES;
const SLOW_POLL_MS = 500;
/** An API server that takes longer may have been stopped with requests under way, in milliseconds. */
export const SLOW_ANSWER_MS = 5_000;

/**
 * Asks every API server until it passes the check: each one where they can be reached one by one or were told apart, and
 * where they were not reached one by one also on {@link SAMPLES} new connections in a row, over `spreadMs`.
 * @throws what `errorOf` makes of the last failure, after `timeoutMs`; what `check` throws, at once.
 */
export async function askAll(apiServers: ApiServers, check: Check, options: AskOptions): Promise<AskResult> {
  const asking = new Asking(check, options);
  await Promise.all((apiServers.clients ?? []).map((client) => asking.until(client)));
  if (apiServers.mode === "sampled") {
    await asking.sample(apiServers.open);
  }
  return asking.result;
}

/** What a check that threw shows; errors that no request raised are thrown on. */
export function checkFailureOf(error: unknown, signal: AbortSignal): CheckFailure {
  signal.throwIfAborted();
  if (failureKindOf(error) === undefined) {
    throw error;
  }
  return { reason: messageOf(error), silent: error instanceof TransportError, cause: error };
}

class Asking {
  readonly #check: Check;
  readonly #options: AskOptions;
  readonly #startedAt: number;
  readonly #deadline: number;
  #lagged = false;
  #failed: CheckFailure | undefined;
  #differed = false;
  #silent = false;
  #isOver = false;

  constructor(check: Check, options: AskOptions) {
    this.#check = check;
    this.#options = options;
    this.#startedAt = options.clock.monotonic();
    this.#deadline = this.#startedAt + options.timeoutMs;
  }

  get result(): AskResult {
    const [lagged, silent, failed] = [this.#lagged, this.#silent, this.#failed];
    return { lagged, silent, ...(failed === undefined || this.#differed ? {} : { failed }) };
  }

  async until(client: ApiClient): Promise<void> {
    try {
      for (let pollMs = FIRST_POLL_MS; ; pollMs = Math.min(2 * pollMs, this.#longestPollMs)) {
        const failure = await this.#failureOf(client);
        if (failure === undefined || this.#isOver) {
          return;
        }
        await this.#options.clock.sleep(this.#pauseMs(failure, pollMs), this.#options.signal);
      }
    } catch (error) {
      // Nobody waits for the others any more.
      this.#isOver = true;
      throw error;
    }
  }

  get #longestPollMs(): number {
    return this.#options.clock.monotonic() - this.#startedAt < PROMPT_MS ? POLL_MS : LATE_POLL_MS;
  }

  /** One connection that disagrees makes the count start again. */
  async sample(open: () => ApiClient): Promise<void> {
    const { clock, signal, spreadMs } = this.#options;
    for (let agreed = 0, taken = 1; agreed < SAMPLES; taken++) {
      const client = open();
      let failure: CheckFailure | undefined;
      try {
        failure = await this.#failureOf(client);
      } finally {
        await client.transport.close();
      }
      agreed = failure === undefined ? agreed + 1 : 0;
      const pollMs = taken > PROMPT_SAMPLES ? SLOW_POLL_MS : POLL_MS;
      await clock.sleep(failure === undefined ? spreadMs / SAMPLES : this.#pauseMs(failure, pollMs), signal);
    }
  }

  /** An overloaded API server gets the time that it asks for, up to the last look. */
  #pauseMs({ cause }: CheckFailure, pollMs: number): number {
    const leftMs = this.#deadline - this.#options.clock.monotonic();
    return Math.max(pollMs, Math.min(askedPauseMs(cause), leftMs));
  }

  #note(failure: CheckFailure): void {
    if (!failure.silent) {
      this.#options.onLag?.();
      this.#lagged = true;
      this.#differed ||= failure.cause === undefined;
      this.#failed = failure;
    }
  }

  /** Asks one, and notes that it is silent, or may be behind: also where the asking is broken off. */
  async #asked(client: ApiClient): Promise<CheckFailure | undefined> {
    const { clock, onLag, onSilence, signal } = this.#options;
    const startedAt = clock.monotonic();
    let failure: CheckFailure | undefined;
    try {
      failure = await this.#check(client);
      return failure;
    } catch (error) {
      if (signal.aborted) {
        // One that is behind holds the question for three seconds: where the run ends before that, nobody knows whether it is.
        onLag?.();
      }
      throw error;
    } finally {
      if (failure?.silent === true || clock.monotonic() - startedAt > SLOW_ANSWER_MS) {
        onSilence?.();
        this.#silent = true;
      }
    }
  }

  /** @returns the failure that is waited for, where there is one */
  async #failureOf(client: ApiClient): Promise<CheckFailure | undefined> {
    const { clock, errorOf, onFailure } = this.#options;
    const failure = await this.#asked(client);
    if (failure === undefined) {
      return undefined;
    }
    this.#note(failure);
    const { server } = client.transport;
    if (clock.monotonic() >= this.#deadline) {
      const error = errorOf(server, failure.reason, failure.silent && failure.lives !== true);
      error.cause ??= failure.cause;
      throw error;
    }
    onFailure?.(server, failure);
    return failure;
  }
}
