import type { Clock } from "../../clock.ts";
import { messageOf } from "../../errors.ts";
import { ApiClient } from "../kube/client.ts";
import { failureKindOf } from "../kube/failure.ts";
import { SLOW_ANSWER_MS } from "./ask-all.ts";
import { MissingApiServer } from "./missing-api-server.ts";
import { askedPauseMs } from "../retry/backoff.ts";
import { DENIAL_PATIENCE_MS } from "../retry/patience.ts";
import type { Transport } from "../kube/transport.ts";
import { type FindLink, PinnedTransport, ServerLink } from "./pinned-transport.ts";
import { isInstanceForbidden } from "./server-instance.ts";

/** What a {@link ServerRoll} needs. */
export interface ServerRollOptions {
  /** Leads to their address. */
  readonly transport: Transport;
  readonly clock: Clock;
  /** Milliseconds that a request to one of them may take. */
  readonly timeoutMs: number;
  /** Called whenever a connection is not answered within five seconds, however the call ends. */
  readonly onSilence: () => void;
}

/** The API servers behind one address that were told apart. */
export interface Roll {
  /** A client for each. */
  readonly clients: readonly ApiClient[];
  /** Whether a connection was not answered, or not within five seconds. */
  readonly silent: boolean;
}

/**
 * So many new connections are opened to find one more API server. Of three behind a load balancer that chooses at random,
 * one is missed so once in a thousand times; then it is looked for again.
 */
const TRIES = 20;
const TRIES_AT_ONCE = 4;
/**
 * So often each connection is asked which API server answers, before it counts as one. An HTTP load balancer that chooses
 * between two of them at random passes on all connections once in 64 times; and then it must pass again before the prune, with
 * one more look on each connection, and with the samples.
 */
const LOOKS = 4;
/** An API server with thousands of resources takes seconds to write its metrics. */
const INSTANCE_TIMEOUT_MS = 10_000;

/** An API server that hangs takes each connection that ends at it ten seconds; it is not looked for any longer than this. */
const FIND_TIMEOUT_MS = 30_000;

/** Between two connections, or four at once, where the ones before failed, in milliseconds: a busy API server gets busier by more. */
const FAILURE_PAUSE_MS = 250;
/** `Retry-After` may ask for more, up to this. */
const MAX_PAUSE_MS = 5_000;

/** Between two looks while the authorizer forbids /metrics. */
const DENIAL_POLL_MS = 1_000;

interface Pin {
  readonly transport: PinnedTransport;
  readonly client: ApiClient;
}

/** Tells the API servers behind one address apart, and keeps a client for each. */
export class ServerRoll {
  readonly #options: ServerRollOptions;
  readonly #pins = new Map<string, Pin>();
  #silent = false;
  /** How the authorizer last forbade /metrics, in this call. */
  #denial: unknown;
  /** How the last connections failed. */
  #failure: unknown;

  constructor(options: ServerRollOptions) {
    this.#options = options;
  }

  /**
   * Calls the API servers until `wanted` of them answered, each on a connection of its own, or enough connections were
   * opened. All of them live at the same time: those that are known are asked again first. An API server that just started
   * knows no roles yet, so a refusal of its authorizer has to last.
   * @returns as many as were found, which may be fewer
   * @throws {KsvmError} ApiServerMissing where they cannot be told apart.
   */
  async call(wanted: number, signal: AbortSignal): Promise<Roll> {
    const { clock } = this.#options;
    this.#silent = false;
    const deadline = clock.monotonic() + DENIAL_PATIENCE_MS;
    for (;;) {
      await this.#callOnce(wanted, signal);
      if (this.#pins.size >= wanted || this.#denial === undefined) {
        return { clients: [...this.#pins.values()].map(({ client }) => client), silent: this.#silent };
      }
      if (clock.monotonic() >= deadline) {
        throw this.#denial;
      }
      await clock.sleep(DENIAL_POLL_MS, signal);
    }
  }

  async #callOnce(wanted: number, signal: AbortSignal): Promise<void> {
    this.#denial = undefined;
    await Promise.all([...this.#pins.entries()].map(([instance, pin]) => this.#keepIfThere(instance, pin, signal)));
    const isLookedFor = (): boolean => this.#pins.size < wanted && this.#denial === undefined;
    for (let tries = 0; isLookedFor() && tries < TRIES; tries += TRIES_AT_ONCE) {
      this.#failure = undefined;
      await Promise.all(Array.from({ length: TRIES_AT_ONCE }, () => this.#meet(signal)));
      if (isLookedFor()) {
        await this.#pauseAfterFailure(signal);
      }
    }
  }

  /** Ends all connections. */
  async close(): Promise<void> {
    await Promise.all([...this.#pins.values()].map(({ transport }) => transport.close()));
    this.#pins.clear();
  }

  async #keepIfThere(instance: string, { transport }: Pin, signal: AbortSignal): Promise<void> {
    if (!(await this.#isAnswered(() => transport.lookAgain(signal), signal))) {
      this.#pins.delete(instance);
      await transport.close();
    }
  }

  /** Opens one connection, and keeps it where it ends at an API server that is not known yet. */
  async #meet(signal: AbortSignal): Promise<void> {
    const link = this.#open();
    let isKept = false;
    try {
      await this.#isAnswered(async () => {
        const instance = await link.askInstance(signal);
        const isNew = instance !== undefined && !this.#pins.has(instance);
        // Another connection may have met it in between.
        if (isNew && (await isAnsweredByOne(link, instance, signal)) && !this.#pins.has(instance)) {
          isKept = true;
          const transport = this.#pinned(link, instance, signal);
          this.#pins.set(instance, { transport, client: new ApiClient(transport) });
        }
      }, signal);
    } finally {
      await (isKept ? undefined : link.transport.close());
    }
  }

  #pinned(link: ServerLink, instance: string, signal: AbortSignal): PinnedTransport {
    const find: FindLink = (wanted, within) => this.#find(wanted, within ?? signal);
    return new PinnedTransport(link, { instance, find });
  }

  /** @throws {MissingApiServer} where none of many connections ends at it: it hangs, it restarted, or it is gone. */
  async #find(wanted: string, signal: AbortSignal): Promise<ServerLink> {
    const deadline = this.#options.clock.monotonic() + FIND_TIMEOUT_MS;
    let tries = 0;
    let denial: unknown;
    for (; tries < TRIES && this.#options.clock.monotonic() < deadline; tries++) {
      const link = this.#open();
      this.#failure = undefined;
      let instance: string | undefined;
      await this.#isAnswered(async () => {
        try {
          instance = await link.instance(signal);
        } catch (error) {
          denial = isInstanceForbidden(error) ? error : denial;
          throw error;
        }
      }, signal);
      if (instance === wanted) {
        return link;
      }
      await link.transport.close();
      await this.#pauseAfterFailure(signal);
    }
    const { server } = this.#options.transport;
    throw new MissingApiServer(notFoundAgain({ server, wanted, tries, denial }));
  }

  #open(): ServerLink {
    return new ServerLink({ ...this.#options, instanceTimeoutMs: INSTANCE_TIMEOUT_MS });
  }

  #waited(ms: number): void {
    if (ms > SLOW_ANSWER_MS) {
      this.#silent = true;
      this.#options.onSilence();
    }
  }

  async #isAnswered(ask: () => Promise<unknown>, signal: AbortSignal): Promise<boolean> {
    const { clock } = this.#options;
    const startedAt = clock.monotonic();
    try {
      await ask().finally(() => this.#waited(clock.monotonic() - startedAt));
      return true;
    } catch (error) {
      signal.throwIfAborted();
      if (isInstanceForbidden(error)) {
        this.#denial = error;
        return false;
      }
      const isAnswerOfSorts =
        error instanceof MissingApiServer || failureKindOf(error) !== undefined || isTimeout(error);
      if (!isAnswerOfSorts) {
        throw error;
      }
      this.#silent = true;
      this.#failure = error;
      return false;
    }
  }

  /** One that answers, and is another than is looked for, is no reason to wait. */
  async #pauseAfterFailure(signal: AbortSignal): Promise<void> {
    if (this.#failure !== undefined) {
      const askedMs = Math.min(MAX_PAUSE_MS, askedPauseMs(this.#failure));
      await this.#options.clock.sleep(Math.max(FAILURE_PAUSE_MS, askedMs), signal);
    }
  }
}

/** Why an API server behind one address was not found again, in words. `denial` is how the authorizer forbade /metrics. */
function notFoundAgain(found: {
  readonly server: string;
  readonly wanted: string;
  readonly tries: number;
  readonly denial: unknown;
}): string {
  const { server, wanted, tries, denial } = found;
  const one = `of the API servers behind ${server}, one that answered before`;
  const on = `${tries} new connections (process_start_time_seconds ${wanted})`;
  // Where /metrics is forbidden, an answer does not tell which API server it comes from.
  return denial === undefined
    ? `${one} no longer answers on ${on}`
    : `${one} cannot be told from others on ${on}: ${messageOf(denial)}`;
}

function isTimeout(error: unknown): boolean {
  return error instanceof DOMException && error.name === "TimeoutError";
}

/**
 * Asks several times more which API server a connection ends at; `false` if it was lost in between.
 * @throws {KsvmError} ApiServerMissing where one connection is answered by several.
 */
async function isAnsweredByOne(link: ServerLink, instance: string, signal: AbortSignal): Promise<boolean> {
  for (let looks = 1; looks < LOOKS; looks++) {
    if ((await link.askInstance(signal)) !== instance) {
      return false;
    }
  }
  return true;
}
