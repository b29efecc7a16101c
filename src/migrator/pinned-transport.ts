import { setImmediate } from "node:timers/promises";
import type { KubeConfig } from "@kubernetes/client-node";
import { ApiError, TransportError } from "../kube/errors.ts";
import { type ApiRequest, type ApiResponse, Transport } from "../kube/transport.ts";
import { readServerInstance } from "./server-instance.ts";

/** How connections are opened. */
export interface LinkOptions {
  readonly config: KubeConfig;
  /** Milliseconds to wait for an answer to a request. */
  readonly timeoutMs: number;
  /** Milliseconds that an API server may take to say which one it is. */
  readonly instanceTimeoutMs: number;
}

/** One connection, which ends at one of several API servers. Once another one was made in its place, it is lost. */
export class ServerLink {
  readonly transport: Transport;
  readonly #options: LinkOptions;
  #connections = 0;
  #instance: string | undefined;

  constructor(options: LinkOptions) {
    this.#options = options;
    this.transport = new Transport(options.config, {
      timeoutMs: options.timeoutMs,
      onConnect: () => {
        this.#connections++;
      },
    });
  }

  /**
   * The API server that every answer so far came from; `undefined` where the connection was lost. It is asked once.
   * @throws as {@link askInstance}.
   */
  async instance(signal: AbortSignal): Promise<string | undefined> {
    return this.#connections === 1 && this.#instance !== undefined ? this.#instance : await this.askInstance(signal);
  }

  /**
   * Asks the API server at the other end which one it is; `undefined` where the connection was lost.
   * @throws {KsvmError} ApiServerMissing where it does not tell.
   * @throws {ApiError | TransportError}
   */
  async askInstance(signal: AbortSignal): Promise<string | undefined> {
    await freeConnection();
    const within = AbortSignal.any([signal, AbortSignal.timeout(this.#options.instanceTimeoutMs)]);
    try {
      this.#instance = await readServerInstance(this.transport, within);
    } catch (error) {
      signal.throwIfAborted();
      throw within.aborted ? new TransportError("GET /metrics", this.transport.server, error) : error;
    }
    return this.#connections === 1 ? this.#instance : undefined;
  }
}

/** undici uses a connection again a full cycle of the event loop after an answer, and opens another one until then. */
async function freeConnection(): Promise<void> {
  await setImmediate();
}

/** A new connection that ends at this API server; throws where none does. */
export type FindLink = (instance: string, signal: AbortSignal | undefined) => Promise<ServerLink>;

/** What a {@link PinnedTransport} needs. */
export interface PinnedTransportOptions {
  readonly config: KubeConfig;
  /** The API server that it leads to. */
  readonly instance: string;
  readonly find: FindLink;
}

/** So often a request is sent again because the connection was lost: an idle one ends within seconds. */
const TRIES = 3;

/**
 * Requests to one of several API servers behind one address, one at a time; for reads and dry-runs. An answer counts only
 * where the connection that it came over ends at that API server; else it is asked again on another one.
 */
export class PinnedTransport extends Transport {
  readonly #options: PinnedTransportOptions;
  #link: ServerLink | undefined;

  constructor(link: ServerLink, options: PinnedTransportOptions) {
    super(options.config);
    this.#options = options;
    this.#link = link;
  }

  /** @throws {TransportError} where the connection is lost again and again; else as {@link Transport.request}. */
  override async request<T>(request: ApiRequest): Promise<ApiResponse<T>> {
    const { find, instance } = this.#options;
    for (let tries = 0; tries < TRIES; tries++) {
      const link = (this.#link ??= await find(instance, request.signal));
      const outcome = await outcomeOf<T>(link, request);
      if ((await link.instance(request.signal ?? NEVER)) === instance) {
        if (outcome instanceof ApiError) {
          throw outcome;
        }
        return outcome;
      }
      this.#link = undefined;
      await link.transport.close();
    }
    const cause = new Error("the connection was lost again and again");
    throw new TransportError(`${request.method} ${request.path}`, this.server, cause);
  }

  override async close(): Promise<void> {
    const link = this.#link;
    this.#link = undefined;
    await link?.transport.close();
  }
}

const NEVER = new AbortController().signal;

/** A refusal is an answer, too. */
async function outcomeOf<T>({ transport }: ServerLink, request: ApiRequest): Promise<ApiResponse<T> | ApiError> {
  await freeConnection();
  try {
    return await transport.request<T>(request);
  } catch (error) {
    if (error instanceof ApiError) {
      return error;
    }
    throw error;
  }
}
