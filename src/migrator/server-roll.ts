import type { KubeConfig } from "@kubernetes/client-node";
import type { Clock } from "../clock.ts";
import { KsvmError } from "../errors.ts";
import { ApiClient } from "../kube/client.ts";
import { failureKindOf } from "../kube/failure.ts";
import { SLOW_ANSWER_MS } from "./ask-all.ts";
import { MissingApiServer } from "./missing-api-server.ts";
import { type FindLink, PinnedTransport, ServerLink } from "./pinned-transport.ts";

/** What a {@link ServerRoll} needs. */
export interface ServerRollOptions {
  readonly config: KubeConfig;
  readonly clock: Clock;
  /** Milliseconds that a request to one of them may take. */
  readonly timeoutMs: number;
}

/** The API servers behind one address that were told apart. */
export interface Roll {
  /** A client for each. */
  readonly clients: readonly ApiClient[];
  /** Whether a connection was not answered, or not within five seconds. */
  readonly silent: boolean;
}

/**
 * So many new connections are opened to find one more API server. Of three behind a load balancer that goes by chance, one
 * is missed so once in a thousand times; then it is looked for again.
 */
const TRIES = 20;
const TRIES_AT_ONCE = 4;
/** An API server with thousands of resources takes seconds to write its metrics. */
const INSTANCE_TIMEOUT_MS = 10_000;

/** Tells the API servers behind one address apart, and keeps a client for each. */
export class ServerRoll {
  readonly #options: ServerRollOptions;
  readonly #pins = new Map<string, ApiClient>();
  #silent = false;

  constructor(options: ServerRollOptions) {
    this.#options = options;
  }

  /**
   * Calls the API servers until `wanted` of them answered, each on a connection of its own, or enough connections were
   * opened. All of them live at the same time: those that are known are asked again first.
   * @returns as many as were found, which may be fewer
   * @throws {KsvmError} ApiServerMissing where they cannot be told apart.
   */
  async call(wanted: number, signal: AbortSignal): Promise<Roll> {
    this.#silent = false;
    await Promise.all(
      [...this.#pins.entries()].map(([instance, client]) => this.#keepIfThere(instance, client, signal)),
    );
    for (let tries = 0; this.#pins.size < wanted && tries < TRIES; tries += TRIES_AT_ONCE) {
      await Promise.all(Array.from({ length: TRIES_AT_ONCE }, () => this.#meet(signal)));
    }
    return { clients: [...this.#pins.values()], silent: this.#silent };
  }

  /** Ends all connections. */
  async close(): Promise<void> {
    await Promise.all([...this.#pins.values()].map(({ transport }) => transport.close()));
    this.#pins.clear();
  }

  async #keepIfThere(instance: string, client: ApiClient, signal: AbortSignal): Promise<void> {
    const within = AbortSignal.any([signal, AbortSignal.timeout(INSTANCE_TIMEOUT_MS)]);
    const ask = () => client.transport.request({ method: "GET", path: "/version", signal: within });
    if (!(await this.#isAnswered(ask, signal))) {
      this.#pins.delete(instance);
      await client.transport.close();
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
        // Another one may have met it meanwhile.
        if (isNew && (await isAnsweredByOne(link, instance, signal)) && !this.#pins.has(instance)) {
          isKept = true;
          this.#pins.set(instance, new ApiClient(this.#pinned(link, instance, signal)));
        }
      }, signal);
    } finally {
      await (isKept ? undefined : link.transport.close());
    }
  }

  #pinned(link: ServerLink, instance: string, signal: AbortSignal): PinnedTransport {
    const find: FindLink = (wanted, within) => this.#find(wanted, within ?? signal);
    return new PinnedTransport(link, { config: this.#options.config, instance, find });
  }

  /** @throws {MissingApiServer} where none of many connections ends at it: it hangs, it restarted, or it is gone. */
  async #find(wanted: string, signal: AbortSignal): Promise<ServerLink> {
    for (let tries = 0; tries < TRIES; tries++) {
      const link = this.#open();
      let instance: string | undefined;
      await this.#isAnswered(async () => {
        instance = await link.instance(signal);
      }, signal);
      if (instance === wanted) {
        return link;
      }
      await link.transport.close();
    }
    throw new MissingApiServer(
      `of the API servers behind ${this.#server}, one that answered before does not answer any more on ${TRIES} new ` +
        `connections (process_start_time_seconds ${wanted})`,
    );
  }

  get #server(): string {
    return this.#options.config.getCurrentCluster()?.server ?? "";
  }

  #open(): ServerLink {
    return new ServerLink({ ...this.#options, instanceTimeoutMs: INSTANCE_TIMEOUT_MS });
  }

  async #isAnswered(ask: () => Promise<unknown>, signal: AbortSignal): Promise<boolean> {
    const { clock } = this.#options;
    const startedAt = clock.monotonic();
    try {
      await ask();
      this.#silent ||= clock.monotonic() - startedAt > SLOW_ANSWER_MS;
      return true;
    } catch (error) {
      signal.throwIfAborted();
      const isAnswerOfSorts =
        error instanceof MissingApiServer || failureKindOf(error) !== undefined || isTimeout(error);
      if (!isAnswerOfSorts) {
        throw error;
      }
      this.#silent = true;
      return false;
    }
  }
}

function isTimeout(error: unknown): boolean {
  return error instanceof DOMException && error.name === "TimeoutError";
}

/**
 * Asks once more which API server a connection ends at; `false` where it was lost meanwhile.
 * @throws {KsvmError} ApiServerMissing where one connection is answered by several.
 */
async function isAnsweredByOne(link: ServerLink, instance: string, signal: AbortSignal): Promise<boolean> {
  const again = await link.askInstance(signal);
  if (again !== undefined && again !== instance) {
    const text =
      `Cannot tell the API servers behind ${link.transport.server} apart: several answer on one connection, as behind an ` +
      "HTTP load balancer; name each with --apiserver-endpoints; nothing was changed";
    throw new KsvmError("ApiServerMissing", text);
  }
  return again === instance;
}
