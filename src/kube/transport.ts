import type { Readable } from "node:stream";
import type { ConnectionConfig } from "./connect/cluster-config.ts";
import { type Dispatcher, request as undiciRequest } from "undici";
import { type Clock, systemClock } from "../clock.ts";
import { KsvmError } from "../errors.ts";
import { parsedAnswer, serverTimeOf, statusOf } from "./answer.ts";
import { type ApiRequest, type ApiResponse, headersOf, isStored, methodAndPath, urlOf } from "./api-request.ts";
import { boundedText } from "./bounded-body.ts";
import { ApiError, TransportError } from "./errors.ts";
import type { CredentialSource } from "./connect/credentials.ts";
import { isAdmissionDenial } from "./failure.ts";
import type { PendingRequests } from "./pending-requests.ts";
import { RequestDeadline } from "./request-deadline.ts";
import { withServer } from "./connect/config.ts";
import { type Carrier, type Session, Sessions } from "./connect/sessions.ts";

/** The body of an answer. */
export type Body = Dispatcher.ResponseData["body"];

/** Awaited before a request that stores something: resolves where it may be sent, throws where it may not. */
export type Fence = () => Promise<void>;

/**
 * Told of every request once the headers of its answer are there, or once none came: then `status` is 0. It lies on the
 * path of every rewrite and must neither throw nor take long.
 */
export type RequestObserver = (method: ApiRequest["method"], status: number, seconds: number) => void;

/** The default of `--request-timeout`, in milliseconds. */
export const DEFAULT_REQUEST_TIMEOUT_MS = 70_000;

/** How a {@link Transport} behaves. */
export interface TransportOptions {
  /**
   * Milliseconds for a whole request: credentials, connection, headers and body; of a stream, up to its headers. The API
   * server itself ends a request after 60 s (`--request-timeout`), so a longer silence means that it is gone.
   * @default {@link DEFAULT_REQUEST_TIMEOUT_MS}
   */
  readonly timeoutMs?: number;
  /** @default those of the configuration's user, shared by all connections of this process */
  readonly credentials?: CredentialSource;
  /** @default the clock of this machine */
  readonly clock?: Clock;
  /** @default none */
  readonly observer?: RequestObserver | undefined;
  /** Told of every request while it is under way; a stream counts until its headers are there. @default none */
  readonly pending?: PendingRequests | undefined;
  /** Called whenever a connection was made; then there is one at a time. @default none, and there may be many connections */
  readonly onConnect?: (() => void) | undefined;
  /** What carries requests to a base URL, in place of connections of its own. @default connections by the configuration */
  readonly carrier?: Carrier | undefined;
}

/** Which API server a {@link Transport.another} leads to, and how. */
export interface AnotherOptions extends Pick<TransportOptions, "timeoutMs" | "onConnect"> {
  /** Its base URL. @default the same */
  readonly server?: string;
}

/** Bytes of an answer that tells an error. A message may quote an object, of which etcd takes 1.5 MiB. */
const MAX_ERROR_BYTES = 4 * 2 ** 20;

/** Requests to one API server. Every stage of one is bounded by its signal and by `timeoutMs`. */
export class Transport {
  /** The API server's base URL, without a slash at its end. */
  readonly server: string;
  readonly #config: ConnectionConfig;
  readonly #options: TransportOptions;
  readonly #timeoutMs: number;
  readonly #clock: Clock;
  readonly #observer: RequestObserver | undefined;
  #sessions: Sessions;
  #fence: Fence | undefined;

  constructor(config: ConnectionConfig, options: TransportOptions = {}) {
    this.#config = config;
    this.#options = options;
    this.#clock = options.clock ?? systemClock;
    this.#observer = options.observer;
    this.#timeoutMs = options.timeoutMs ?? DEFAULT_REQUEST_TIMEOUT_MS;
    this.server = (config.getCurrentCluster()?.server ?? "").replace(/\/+$/, "");
    this.#sessions = new Sessions(config, this.server, {
      clock: this.#clock,
      credentials: options.credentials,
      onConnect: options.onConnect,
      carrier: options.carrier,
    });
  }

  /** Cluster and user. It may hold secrets: as a getter it is in no output of a transport. */
  get config(): ConnectionConfig {
    return this.#config;
  }

  /**
   * Connections of their own to another API server of the cluster, or to the same address, with the same credentials and clock.
   * No fence, and nobody is told of its requests.
   */
  another({ server, ...options }: AnotherOptions): Transport {
    const config = server === undefined ? this.#config : withServer(this.#config, server);
    const { carrier, clock, credentials } = this.#options;
    return new Transport(config, {
      ...options,
      carrier,
      ...(clock === undefined ? {} : { clock }),
      ...(credentials === undefined ? {} : { credentials }),
    });
  }

  /**
   * The same connections, and `fence` before each request that stores something, the second try after a 401 included.
   * Closing this one closes both.
   */
  fencedBy(fence: Fence): Transport {
    const fenced = new Transport(this.#config, this.#options);
    fenced.#sessions = this.#sessions;
    fenced.#fence = fence;
    return fenced;
  }

  /** The same connections, and `pending` is told of each request. Closing this one closes both. */
  pendingIn(pending: PendingRequests): Transport {
    const told = new Transport(this.#config, { ...this.#options, pending });
    told.#sessions = this.#sessions;
    told.#fence = this.#fence;
    return told;
  }

  /**
   * Gets the credentials that requests are sent with. A user who has to answer an exec plugin may take longer than a request.
   * @throws {KsvmError} Unauthorized where there are none.
   * @throws the signal's reason where it was aborted.
   */
  async authenticate(signal: AbortSignal): Promise<void> {
    const deadline = new RequestDeadline(this.#clock, signal, this.#timeoutMs);
    try {
      await deadline.uncounted(this.#sessions.get());
    } finally {
      deadline.end();
    }
  }

  /**
   * Sends one request and parses the JSON answer.
   * @throws {ApiError} for an answer of 300 or above.
   * @throws {DoubtfulAnswer} for one that is larger than 64 MiB: what etcd and the page sizes allow stays below that; for
   *   an empty one, which no API server gives, except to a DELETE.
   * @throws {TransportError} where no whole answer came.
   * @throws the signal's reason where it was aborted.
   */
  async request<T>(request: ApiRequest): Promise<ApiResponse<T>> {
    const what = `${methodAndPath(request)}: the answer of ${this.server}`;
    // An answer to a DELETE may be empty: its status says all.
    const mayBeEmpty = request.method === "DELETE";
    const whole = this.#whole(request, (answer) => parsedAnswer<T>(answer, { what, mayBeEmpty }));
    try {
      return await this.#sessions.track(whole);
    } finally {
      await this.#sessions.free();
    }
  }

  /**
   * Sends one request and has `read` make something of the answer's body as it arrives.
   * @throws as {@link request}; {TransportError} also where `read` throws anything but a {KsvmError}.
   */
  async read<T>(request: ApiRequest, read: (body: Body) => Promise<T>): Promise<ApiResponse<T>> {
    return this.#sessions.track(this.#whole(request, ({ body }) => read(body)));
  }

  async #whole<T>(request: ApiRequest, read: (answer: Dispatcher.ResponseData) => Promise<T>): Promise<ApiResponse<T>> {
    const deadline = new RequestDeadline(this.#clock, request.signal, request.timeoutMs ?? this.#timeoutMs);
    const ended = this.#options.pending?.begin(methodAndPath(request));
    try {
      const answer = await this.#send(request, deadline);
      const body = await this.#stage(request, deadline, read(answer));
      return { status: answer.statusCode, body, serverTime: serverTimeOf(answer) };
    } finally {
      deadline.end();
      ended?.();
    }
  }

  /**
   * Opens a streaming answer, as a watch has. The caller reads or destroys it.
   * @throws as {@link request}.
   */
  async stream(request: ApiRequest): Promise<Readable> {
    return this.#sessions.track(this.#open(request));
  }

  async #open(request: ApiRequest): Promise<Readable> {
    const deadline = new RequestDeadline(this.#clock, request.signal, this.#timeoutMs);
    const ended = this.#options.pending?.begin(methodAndPath(request));
    try {
      const { body } = await this.#send(request, deadline);
      deadline.stopTimer();
      body.once("close", () => deadline.end());
      return body;
    } catch (error) {
      deadline.end();
      throw error;
    } finally {
      ended?.();
    }
  }

  /**
   * Ends all connections once the requests under way are done; a watcher ends its watch first. Destroying them instead
   * would raise an error on a body that was read to its end a moment ago.
   */
  async close(): Promise<void> {
    await this.#sessions.close();
  }

  async #send(request: ApiRequest, deadline: RequestDeadline): Promise<Dispatcher.ResponseData> {
    const session = await this.#stage(request, deadline, this.#sessions.get());
    let answer = await this.#sendObserved(request, deadline, session);
    if (answer.statusCode === 401) {
      const refusal = await this.#errorOf(request, deadline, answer);
      if (isAdmissionDenial(refusal)) {
        throw refusal;
      }
      // The token may have expired a moment ago: once more, with a new one.
      const renewed = await this.#stage(request, deadline, this.#sessions.renew(session));
      answer = await this.#sendObserved(request, deadline, renewed);
    }
    if (answer.statusCode >= 300) {
      throw await this.#errorOf(request, deadline, answer);
    }
    this.#sessions.accept();
    return answer;
  }

  async #sendObserved(
    request: ApiRequest,
    deadline: RequestDeadline,
    session: Session,
  ): Promise<Dispatcher.ResponseData> {
    const observer = this.#observer;
    if (observer === undefined) {
      return this.#sendOnce(request, deadline, session);
    }
    const startedAt = this.#clock.monotonic();
    let status = 0;
    try {
      const answer = await this.#sendOnce(request, deadline, session);
      status = answer.statusCode;
      return answer;
    } finally {
      observer(request.method, status, (this.#clock.monotonic() - startedAt) / 1_000);
    }
  }

  async #sendOnce(request: ApiRequest, deadline: RequestDeadline, session: Session): Promise<Dispatcher.ResponseData> {
    if (this.#fence !== undefined && isStored(request)) {
      await deadline.uncounted(this.#fence());
    }
    request.signal?.throwIfAborted();
    // The deadline bounds what undici would bound stage by stage. What is aborted before its connection stands is not sent.
    const sent = undiciRequest(urlOf(this.server, request), {
      method: request.method,
      dispatcher: session.dispatcher,
      headers: headersOf(request, session.headers),
      body: request.body === undefined ? null : JSON.stringify(request.body),
      signal: deadline.signal,
      headersTimeout: 0,
      bodyTimeout: 0,
    });
    return this.#stage(request, deadline, sent);
  }

  async #errorOf(request: ApiRequest, deadline: RequestDeadline, answer: Dispatcher.ResponseData): Promise<ApiError> {
    const said = await this.#stage(request, deadline, boundedText(answer.body, MAX_ERROR_BYTES));
    const { location, "retry-after": retryAfter } = answer.headers;
    const status = statusOf(said);
    const isRedirect = answer.statusCode < 400 && typeof location === "string";
    const text = isRedirect ? `it redirects to ${location}` : said;
    return new ApiError(methodAndPath(request), answer.statusCode, {
      ...(status === undefined ? { text } : { answer: status }),
      ...(typeof retryAfter === "string" ? { retryAfter } : {}),
      serverTime: serverTimeOf(answer) ?? this.#clock.now(),
      wereAccepted: this.#sessions.wereAccepted,
    });
  }

  /** Waits for one stage of a request. A failure of it means that no whole answer came, unless it says what it means. */
  async #stage<T>(request: ApiRequest, deadline: RequestDeadline, stage: Promise<T>): Promise<T> {
    try {
      return await deadline.race(stage);
    } catch (error) {
      // The caller's own reason goes before what followed from it.
      request.signal?.throwIfAborted();
      throw error instanceof KsvmError ? error : new TransportError(methodAndPath(request), this.server, error);
    }
  }
}
