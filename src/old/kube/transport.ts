import type { Readable } from "node:stream";
import type { ConnectionConfig } from "./connect/cluster-config.ts";
import { type Clock, systemClock } from "../../clock.ts";
import { KsvmError } from "../../errors.ts";
import { MAX_ANSWER_BYTES, parsedAnswer, serverTimeOf, statusOf, tooLargeAnswer } from "./answer.ts";
import { type ApiRequest, type ApiResponse, headersOf, isStored, methodAndPath, pathOf } from "./api-request.ts";
import { BodyTooLarge } from "./bounded-body.ts";
import { ApiError, TransportError } from "./errors.ts";
import { isAdmissionDenial } from "./failure.ts";
import type { PendingRequests } from "./pending-requests.ts";
import {
  type Answer,
  type Body,
  errorTextOf,
  isError,
  type Reception,
  type Sending,
  streamed,
  type TextAnswer,
  textUpTo,
  wholeUpTo,
} from "./reception.ts";
import { RequestDeadline } from "./request-deadline.ts";
import { withServer } from "./connect/config.ts";
import {
  type AnotherOptions,
  DEFAULT_REQUEST_TIMEOUT_MS,
  type Fence,
  type RequestObserver,
  type TransportOptions,
} from "./transport-options.ts";
import { type Session, Sessions } from "./connect/sessions.ts";

/** By what a request is sent, and how its answer is received. */
interface Way<A extends Answer> {
  readonly session: Session;
  readonly receive: Reception<A>;
}

/** Requests to one API server. Every stage of one is bounded by its signal and by `timeoutMs`. */
export class Transport {
  /** The API server's base URL, without a slash at its end. */
  readonly server: string;
  readonly #config: ConnectionConfig;
  readonly #options: TransportOptions;
  readonly #timeoutMs: number;
  readonly #clock: Clock;
  readonly #observer: RequestObserver | undefined;
  /** What goes before the path of each request. */
  readonly #address: { readonly origin: string; readonly path: string };
  #sessions: Sessions;
  #fence: Fence | undefined;

  constructor(config: ConnectionConfig, options: TransportOptions = {}) {
    this.#config = config;
    this.#options = options;
    this.#clock = options.clock ?? systemClock;
    this.#observer = options.observer;
    this.#timeoutMs = options.timeoutMs ?? DEFAULT_REQUEST_TIMEOUT_MS;
    this.server = (config.getCurrentCluster()?.server ?? "").replace(/\/+$/, "");
    const { origin, pathname } = URL.parse(this.server) ?? { origin: this.server, pathname: "" };
    this.#address = { origin, path: pathname.replace(/\/+$/, "") };
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
   *   an empty one, which no API server gives.
   * @throws {TransportError} where no whole answer came.
   * @throws the signal's reason where it was aborted.
   */
  async request<T>(request: ApiRequest): Promise<ApiResponse<T>> {
    const what = `${methodAndPath(request)}: the answer of ${this.server}`;
    const read = ({ body }: TextAnswer): T => parsedAnswer(body, what) as T;
    try {
      return await this.#sessions.track(this.#answered(request, textUpTo(MAX_ANSWER_BYTES), read));
    } catch (error) {
      // The caller's own reason may have such a cause as well.
      const cause = error instanceof TransportError ? error.cause : undefined;
      const isTooLarge = cause instanceof BodyTooLarge && cause.limitBytes === MAX_ANSWER_BYTES;
      throw isTooLarge && request.signal?.aborted !== true ? tooLargeAnswer(what, cause) : error;
    } finally {
      await this.#sessions.free();
    }
  }

  /**
   * Sends one request and has `read` make something of the answer's bytes, which may be `limitBytes` at the most.
   * @throws as {@link read}; {TransportError} also where there are more.
   */
  async readBytes<T>(request: ApiRequest, limitBytes: number, read: (body: Buffer) => T): Promise<ApiResponse<T>> {
    return this.#sessions.track(this.#answered(request, wholeUpTo(limitBytes), ({ body }) => read(body)));
  }

  /**
   * Sends one request and has `read` make something of the answer's body as it arrives.
   * @throws as {@link request}; {TransportError} also where `read` throws anything but a {KsvmError}.
   */
  async read<T>(request: ApiRequest, read: (body: Body) => Promise<T>): Promise<ApiResponse<T>> {
    return this.#sessions.track(this.#answered(request, streamed, ({ body }) => read(body)));
  }

  async #answered<A extends Answer, T>(
    request: ApiRequest,
    receive: Reception<A>,
    read: (answer: A) => T | Promise<T>,
  ): Promise<ApiResponse<T>> {
    const deadline = new RequestDeadline(this.#clock, request.signal, request.timeoutMs ?? this.#timeoutMs);
    const ended = this.#options.pending?.begin(methodAndPath(request));
    try {
      const answer = await this.#send(request, deadline, receive);
      const body = await this.#stage(request, deadline, async () => read(answer));
      return { status: answer.status, body, serverTime: serverTimeOf(answer.headers) };
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
      const { body } = await this.#send(request, deadline, streamed);
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

  async #send<A extends Answer>(request: ApiRequest, deadline: RequestDeadline, receive: Reception<A>): Promise<A> {
    const session = await this.#stage(request, deadline, () => this.#sessions.get());
    let answer = await this.#sendObserved(request, deadline, { session, receive });
    if (answer.status === 401) {
      const refusal = await this.#errorOf(request, deadline, answer);
      if (isAdmissionDenial(refusal)) {
        throw refusal;
      }
      // The token may have expired a moment ago: once more, with a new one.
      const renewed = await this.#stage(request, deadline, () => this.#sessions.renew(session));
      answer = await this.#sendObserved(request, deadline, { session: renewed, receive });
    }
    if (isError(answer.status)) {
      throw await this.#errorOf(request, deadline, answer);
    }
    this.#sessions.accept();
    return answer;
  }

  async #sendObserved<A extends Answer>(request: ApiRequest, deadline: RequestDeadline, way: Way<A>): Promise<A> {
    const observer = this.#observer;
    if (observer === undefined) {
      return this.#sendOnce(request, deadline, { ...way, onHeaders: () => {} });
    }
    const startedAt = this.#clock.monotonic();
    let isTold = false;
    const tell = (status: number): void => {
      if (isTold) return;
      isTold = true;
      observer(request.method, status, (this.#clock.monotonic() - startedAt) / 1_000);
    };
    try {
      return await this.#sendOnce(request, deadline, { ...way, onHeaders: tell });
    } finally {
      tell(0);
    }
  }

  async #sendOnce<A extends Answer>(
    request: ApiRequest,
    deadline: RequestDeadline,
    { onHeaders, receive, session }: Way<A> & Pick<Sending, "onHeaders">,
  ): Promise<A> {
    if (this.#fence !== undefined && isStored(request)) {
      await deadline.uncounted(this.#fence());
    }
    request.signal?.throwIfAborted();
    const { dispatcher } = session;
    const dispatched = {
      ...this.#address,
      path: `${this.#address.path}${pathOf(request)}`,
      method: request.method,
      headers: headersOf(request, session.headers),
      body: request.body === undefined ? null : JSON.stringify(request.body),
      // The deadline bounds what undici would bound stage by stage. What it ends before its connection stands is not sent.
      headersTimeout: 0,
      bodyTimeout: 0,
    };
    return this.#stage(request, deadline, () => receive({ dispatcher, request: dispatched, deadline, onHeaders }));
  }

  async #errorOf(request: ApiRequest, deadline: RequestDeadline, answer: Answer): Promise<ApiError> {
    const said = await this.#stage(request, deadline, () => errorTextOf(answer));
    const { location, "retry-after": retryAfter } = answer.headers;
    const status = statusOf(said);
    const isRedirect = answer.status < 400 && typeof location === "string";
    const text = isRedirect ? `it redirects to ${location}` : said;
    return new ApiError(methodAndPath(request), answer.status, {
      ...(status === undefined ? { text } : { answer: status }),
      ...(typeof retryAfter === "string" ? { retryAfter } : {}),
      serverTime: serverTimeOf(answer.headers) ?? this.#clock.now(),
      wereAccepted: this.#sessions.wereAccepted,
    });
  }

  /** Waits for one stage of a request. A failure of it means that no whole answer came, unless it says what it means. */
  async #stage<T>(request: ApiRequest, deadline: RequestDeadline, stage: () => Promise<T>): Promise<T> {
    try {
      return await deadline.race(stage());
    } catch (error) {
      // The caller's own reason goes before what followed from it.
      request.signal?.throwIfAborted();
      throw error instanceof KsvmError ? error : new TransportError(methodAndPath(request), this.server, error);
    }
  }
}
