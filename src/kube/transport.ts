import type { Readable } from "node:stream";
import type { KubeConfig } from "@kubernetes/client-node";
import { type Dispatcher, request as undiciRequest } from "undici";
import type { Status } from "../api/meta.ts";
import { type Clock, systemClock } from "../clock.ts";
import { ApiError, TransportError } from "./errors.ts";
import { type Session, Sessions } from "./sessions.ts";

/** One request to an API server. */
export interface ApiRequest {
  readonly method: "GET" | "POST" | "PUT" | "PATCH" | "DELETE";
  /** The path without a query, each segment encoded. */
  readonly path: string;
  readonly query?: Readonly<Record<string, string | number | boolean | undefined>>;
  /** Sent as JSON. */
  readonly body?: unknown;
  /** @default application/json */
  readonly contentType?: string;
  /** @default application/json */
  readonly accept?: string;
  readonly signal?: AbortSignal | undefined;
}

/** An answer with a status below 400. */
export interface ApiResponse<T> {
  readonly status: number;
  readonly body: T;
  /** The API server's clock (`Date` header), in milliseconds since the Unix epoch, cut to the second. */
  readonly serverTime: number | undefined;
}

/** Awaited before a request that stores something: resolves where it may be sent, throws where it may not. */
export type Fence = () => Promise<void>;

/**
 * Told of every request once the headers of its answer are there, or once none came: then `status` is 0. It lies on the
 * path of every rewrite and must neither throw nor take long.
 */
export type RequestObserver = (method: ApiRequest["method"], status: number, seconds: number) => void;

/** How a {@link Transport} behaves. */
export interface TransportOptions {
  /**
   * Milliseconds to wait for an answer. The API server itself ends a request after 60 s (`--request-timeout`), so a
   * longer silence means that it is gone.
   * @default 70000
   */
  readonly timeoutMs?: number;
  /** @default the clock of this machine */
  readonly clock?: Clock;
  /** @default nobody is told */
  readonly observer?: RequestObserver | undefined;
}

/**
 * Requests to one API server: client-node's KubeConfig authenticates (certificates, tokens, exec plugins, proxies),
 * undici carries the bytes.
 */
export class Transport {
  /** The API server's base URL, without a slash at its end. */
  readonly server: string;
  readonly #config: KubeConfig;
  readonly #options: TransportOptions;
  readonly #timeoutMs: number;
  readonly #clock: Clock;
  readonly #observer: RequestObserver | undefined;
  #sessions: Sessions;
  #fence: Fence | undefined;

  constructor(config: KubeConfig, options: TransportOptions = {}) {
    this.#config = config;
    this.#options = options;
    this.#clock = options.clock ?? systemClock;
    this.#observer = options.observer;
    this.#timeoutMs = options.timeoutMs ?? 70_000;
    this.server = (config.getCurrentCluster()?.server ?? "").replace(/\/+$/, "");
    this.#sessions = new Sessions(config, this.server, this.#clock);
  }

  /**
   * The same connections, and `fence` before each request that stores something, the second try after a 401 included.
   * Whoever closes this one closes both.
   */
  fencedBy(fence: Fence): Transport {
    const fenced = new Transport(this.#config, this.#options);
    fenced.#sessions = this.#sessions;
    fenced.#fence = fence;
    return fenced;
  }

  /**
   * Sends one request and parses the JSON answer.
   * @throws {ApiError} for an answer of 400 or above.
   * @throws {TransportError} where no whole answer came.
   * @throws the signal's reason where it was aborted.
   */
  async request<T>(request: ApiRequest): Promise<ApiResponse<T>> {
    const answer = await this.#send(request, this.#timeoutMs);
    try {
      const text = await answer.body.text();
      const body = text === "" ? undefined : JSON.parse(text);
      return { status: answer.statusCode, body, serverTime: serverTimeOf(answer) };
    } catch (error) {
      request.signal?.throwIfAborted();
      throw new TransportError(describe(request), this.server, error);
    }
  }

  /**
   * Opens a streaming answer, as a watch has. The caller reads or destroys it.
   * @throws as {@link request}.
   */
  async stream(request: ApiRequest): Promise<Readable> {
    const answer = await this.#send(request, 0);
    return answer.body;
  }

  /**
   * Ends all connections once the requests under way are done; whoever watches ends that first. Destroying them instead
   * would raise an error on a body that was read to its end a moment ago.
   */
  async close(): Promise<void> {
    await this.#sessions.close();
  }

  async #send(request: ApiRequest, bodyTimeout: number): Promise<Dispatcher.ResponseData> {
    const session = await this.#sessions.get();
    let answer = await this.#sendObserved(request, bodyTimeout, session);
    if (answer.statusCode === 401) {
      // The token may have expired a moment ago: once more, with a new one.
      await answer.body.dump();
      answer = await this.#sendObserved(request, bodyTimeout, await this.#sessions.renew(session));
    }
    if (answer.statusCode >= 400) {
      throw await this.#errorOf(request, answer);
    }
    return answer;
  }

  async #sendObserved(request: ApiRequest, bodyTimeout: number, session: Session): Promise<Dispatcher.ResponseData> {
    const observer = this.#observer;
    if (observer === undefined) {
      return this.#sendOnce(request, bodyTimeout, session);
    }
    const startedAt = this.#clock.monotonic();
    let status = 0;
    try {
      const answer = await this.#sendOnce(request, bodyTimeout, session);
      status = answer.statusCode;
      return answer;
    } finally {
      observer(request.method, status, (this.#clock.monotonic() - startedAt) / 1_000);
    }
  }

  async #sendOnce(request: ApiRequest, bodyTimeout: number, session: Session): Promise<Dispatcher.ResponseData> {
    if (this.#fence !== undefined && isStored(request)) {
      await this.#fence();
    }
    request.signal?.throwIfAborted();
    try {
      return await undiciRequest(urlOf(this.server, request), {
        method: request.method,
        dispatcher: session.dispatcher,
        headers: headersOf(request, session),
        body: request.body === undefined ? null : JSON.stringify(request.body),
        signal: request.signal ?? null,
        headersTimeout: this.#timeoutMs,
        bodyTimeout,
      });
    } catch (error) {
      request.signal?.throwIfAborted();
      throw new TransportError(describe(request), this.server, error);
    }
  }

  async #errorOf(request: ApiRequest, answer: Dispatcher.ResponseData): Promise<Error> {
    let text: string;
    try {
      text = await answer.body.text();
    } catch (error) {
      return new TransportError(describe(request), this.server, error);
    }
    const retryAfter = answer.headers["retry-after"];
    const status = statusOf(text);
    return new ApiError(describe(request), answer.statusCode, {
      ...(status === undefined ? { text } : { answer: status }),
      ...(typeof retryAfter === "string" ? { retryAfter } : {}),
    });
  }
}

/** Whether a request may change what is in etcd. */
function isStored({ method, query }: ApiRequest): boolean {
  return method !== "GET" && query?.["dryRun"] === undefined;
}

function urlOf(server: string, request: ApiRequest): string {
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries(request.query ?? {})) {
    if (value !== undefined) {
      query.set(name, String(value));
    }
  }
  const search = query.size === 0 ? "" : `?${query.toString()}`;
  return `${server}${request.path}${search}`;
}

function headersOf(request: ApiRequest, session: Session): Record<string, string> {
  const headers: Record<string, string> = {
    ...session.headers,
    accept: request.accept ?? "application/json",
    "user-agent": "ksvm",
  };
  if (request.body !== undefined) {
    headers["content-type"] = request.contentType ?? "application/json";
  }
  return headers;
}

function describe(request: ApiRequest): string {
  return `${request.method} ${request.path}`;
}

function serverTimeOf(answer: Dispatcher.ResponseData): number | undefined {
  const { date } = answer.headers;
  const time = typeof date === "string" ? Date.parse(date) : Number.NaN;
  return Number.isNaN(time) ? undefined : time;
}

function statusOf(text: string): Status | undefined {
  try {
    const value: unknown = JSON.parse(text);
    const isStatus = typeof value === "object" && value !== null && "kind" in value && value.kind === "Status";
    return isStatus ? (value as Status) : undefined;
  } catch {
    return undefined;
  }
}
