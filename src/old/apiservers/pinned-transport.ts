import type { Clock } from "../../clock.ts";
import { KsvmError } from "../../errors.ts";
import { ApiError, TransportError } from "../kube/errors.ts";
import { type ApiRequest, type ApiResponse, isStored } from "../kube/api-request.ts";
import { Transport } from "../kube/transport.ts";
import { isInstanceForbidden, readServerInstance } from "./server-instance.ts";

/** How a connection is opened. */
export interface LinkOptions {
  /** Leads to the same address. */
  readonly transport: Transport;
  readonly clock: Clock;
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
    this.transport = options.transport.another({
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
   * @throws {KsvmError} ApiServerMissing where it does not tell, or where several answer on this connection.
   * @throws {ApiError | TransportError}
   */
  async askInstance(signal: AbortSignal): Promise<string | undefined> {
    const instance = await this.#readInstance(signal);
    if (this.#connections !== 1) {
      this.#instance = undefined;
      return undefined;
    }
    if (this.#instance !== undefined && this.#instance !== instance) {
      throw severalOnOne(this.transport.server);
    }
    this.#instance = instance;
    return instance;
  }

  /** undici uses a connection again a full cycle of the event loop after an answer, and opens another one until then. */
  free(signal?: AbortSignal): Promise<void> {
    return this.#options.clock.sleep(0, signal);
  }

  async #readInstance(signal: AbortSignal): Promise<string> {
    await this.free(signal);
    const within = AbortSignal.any([signal, this.#options.clock.timeout(this.#options.instanceTimeoutMs)]);
    try {
      return await readServerInstance(this.transport, within);
    } catch (error) {
      signal.throwIfAborted();
      throw within.aborted ? new TransportError("GET /metrics", this.transport.server, error) : error;
    }
  }
}

function severalOnOne(server: string): KsvmError {
  const text =
    `Cannot tell the API servers behind ${server} apart: several answer on one connection, as behind an HTTP load ` +
    "balancer; name each with --apiserver-endpoints";
  return new KsvmError("ApiServerMissing", text);
}

/** A new connection that ends at this API server; throws where none does. */
export type FindLink = (instance: string, signal: AbortSignal | undefined) => Promise<ServerLink>;

/** What a {@link PinnedTransport} needs. */
export interface PinnedTransportOptions {
  /** The API server that it leads to. */
  readonly instance: string;
  readonly find: FindLink;
}

/** So often a request is sent again because the connection was lost: an idle one ends within seconds. */
const TRIES = 3;

/**
 * Requests to one of several API servers behind one address, one at a time; for reads and dry-runs. An answer counts only
 * where the connection that it came over ends at that API server; else it is asked again on another one. That takes an answer
 * that is there as a whole, and a request that may be sent twice: everything else would end at any of the API servers, or
 * be used before it is known which of them it came from, and is refused.
 */
export class PinnedTransport extends Transport {
  readonly #options: PinnedTransportOptions;
  #link: ServerLink | undefined;

  constructor(link: ServerLink, options: PinnedTransportOptions) {
    super(link.transport.config);
    this.#options = options;
    this.#link = link;
  }

  /** The API server that it leads to, as `readServerInstance` has it. */
  get instance(): string {
    return this.#options.instance;
  }

  /**
   * Asks once more which API server answers. Behind an HTTP load balancer any of them may have answered so far: one that
   * hangs and was taken out of turn shows by the answer of another one on the same connection.
   * @throws {KsvmError} ApiServerMissing where several answer on one connection.
   * @throws {MissingApiServer} where it no longer answers on new connections.
   * @throws {ApiError | TransportError}
   */
  async lookAgain(signal: AbortSignal): Promise<void> {
    const { find, instance } = this.#options;
    if ((await this.#link?.askInstance(signal)) === instance) {
      return;
    }
    await this.close();
    this.#link = await find(instance, signal);
  }

  /**
   * @throws {TransportError} where the connection is lost again and again; {KsvmError} Internal for a request that stores
   *   something; else as {@link Transport.request}.
   */
  override async request<T>(request: ApiRequest): Promise<ApiResponse<T>> {
    if (isStored(request)) {
      throw notPinned(`${request.method} ${request.path}`);
    }
    const { find, instance } = this.#options;
    for (let tries = 0; tries < TRIES; tries++) {
      const link = (this.#link ??= await find(instance, request.signal));
      const outcome = await outcomeOf<T>(link, request);
      if (await isAt(link, instance, request.signal ?? NEVER)) {
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

  /** @throws {KsvmError} Internal, always. */
  override read(): Promise<never> {
    return Promise.reject(notPinned("an answer that is used as it arrives"));
  }

  /** @throws {KsvmError} Internal, always. */
  override readBytes(): Promise<never> {
    return Promise.reject(notPinned("an answer that is used as bytes"));
  }

  /** @throws {KsvmError} Internal, always. */
  override stream(): Promise<never> {
    return Promise.reject(notPinned("a stream"));
  }

  /** @throws {KsvmError} Internal, always. */
  override fencedBy(): never {
    throw notPinned("a fence");
  }

  /** @throws {KsvmError} Internal, always. */
  override pendingIn(): never {
    throw notPinned("another transport on its connections");
  }

  /** @throws {KsvmError} Internal, always. */
  override another(): never {
    throw notPinned("another connection");
  }

  override async close(): Promise<void> {
    const link = this.#link;
    this.#link = undefined;
    await link?.transport.close();
  }
}

function notPinned(what: string): KsvmError {
  return new KsvmError(
    "Internal",
    `Cannot ask one of several API servers behind one address: ${what} cannot be pinned to it`,
  );
}

const NEVER = new AbortController().signal;

/** One that just started knows no roles yet and refuses to say which it is: it is not the one that has said so before. */
async function isAt(link: ServerLink, instance: string, signal: AbortSignal): Promise<boolean> {
  try {
    return (await link.instance(signal)) === instance;
  } catch (error) {
    if (isInstanceForbidden(error)) {
      return false;
    }
    throw error;
  }
}

/** A refusal is an answer, too. */
async function outcomeOf<T>(link: ServerLink, request: ApiRequest): Promise<ApiResponse<T> | ApiError> {
  await link.free();
  try {
    return await link.transport.request<T>(request);
  } catch (error) {
    if (error instanceof ApiError) {
      return error;
    }
    throw error;
  }
}
