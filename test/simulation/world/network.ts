import { Dispatcher } from "undici";
import type { Carrier } from "../../../src/kube/connect/sessions.ts";
import type { ModelAnswer, ModelRequest, WatchSink } from "../model/types.ts";
import type { Schedule } from "./schedule.ts";
import type { SimProcess } from "./sim-process.ts";

/** What answers requests at the far end: an API server with the process that it runs in. */
export interface Peer {
  readonly process: SimProcess;
  /** Whether it takes requests; false for one that has ended, and for one that has taken its last request. */
  readonly isListening: boolean;
  handle(request: ModelRequest): Promise<ModelAnswer>;
}

interface Delivered {
  readonly kind: "delivered";
  readonly peer: Peer;
  /** What something between makes of an answer with the status 200. */
  readonly pass?: (body: string) => string;
}

/** What becomes of one request on its way. */
export type Fate = {
  /** How much longer it is on its way than others, in milliseconds. @default 0 */
  readonly holdMs?: number;
} & (
  | Delivered
  /** Something between answers in the place of an API server, and passes nothing on. */
  | { readonly kind: "answered"; readonly answer: Pick<ModelAnswer, "status" | "headers"> & { readonly body: string } }
  /** The connection breaks: before the request arrives, or with the answer on its way. */
  | { readonly kind: "reset"; readonly peer: Peer | undefined }
  /** Nothing comes back, ever: the request or its answer is lost, and the connection looks alive. */
  | { readonly kind: "lost"; readonly peer: Peer | undefined }
);

/** Decides about one request to a base URL. `pinned` is the peer that the connection leads to, where there is one. */
export type Route = (request: ModelRequest, server: string, pinned: Peer | undefined) => Fate;

/** How long the next thing is on its way from or to a process, in milliseconds. */
export type Latency = () => number;

/**
 * Told of each request that a process sends, when it sends it. What it returns is told how that ended: with the
 * answer that came, or with nothing.
 */
export type OnExchange = (request: ModelRequest, process: SimProcess) => (answer?: ModelAnswer) => void;

/** What a {@link Network} is made of. */
export interface NetworkOptions {
  readonly schedule: Schedule;
  readonly route: Route;
  /** Of a process. */
  readonly latencyOf: (process: string) => Latency;
  readonly onExchange: OnExchange;
}

/** The way from each process to each API server. */
export class Network {
  readonly #options: NetworkOptions;

  constructor(options: NetworkOptions) {
    this.#options = options;
  }

  /** What carries the requests of a process. */
  carrierOf(process: SimProcess): Carrier {
    const latency = this.#options.latencyOf(process.name);
    return (server, onConnect) => new SimulatedConnections({ ...this.#options, latency }, process, server, onConnect);
  }
}

/** What a network is made of, as one process sees it. */
interface Way extends NetworkOptions {
  readonly latency: Latency;
}

/** Connections of one process to one base URL; where `onConnect` is given there is one, which leads to one peer. */
class SimulatedConnections extends Dispatcher {
  readonly #options: Way;
  readonly #process: SimProcess;
  readonly #server: string;
  readonly #onConnect: (() => void) | undefined;
  #pinned: Peer | undefined;

  constructor(options: Way, process: SimProcess, server: string, onConnect: (() => void) | undefined) {
    super();
    this.#options = options;
    this.#process = process;
    this.#server = server;
    this.#onConnect = onConnect;
  }

  override dispatch(options: Dispatcher.DispatchOptions, handler: Dispatcher.DispatchHandler): boolean {
    const request = modelRequestOf(options, this.#process.name);
    const exchange = new Exchange(this.#options, this.#process, {
      handler,
      onEnd: this.#options.onExchange(request, this.#process),
    });
    const fate = this.#options.route(request, this.#server, this.#pinned);
    if (this.#onConnect !== undefined) {
      this.#connect(fate, this.#onConnect);
    }
    exchange.begin(request, fate);
    return true;
  }

  #connect(fate: Fate, onConnect: () => void): void {
    const peer = "peer" in fate ? fate.peer : undefined;
    if (this.#pinned === undefined || peer !== this.#pinned) {
      onConnect();
    }
    this.#pinned = fate.kind === "reset" ? undefined : peer;
  }

  override close(): Promise<void>;
  override close(callback: () => void): void;
  override close(callback?: () => void): Promise<void> | undefined {
    callback?.();
    return callback === undefined ? Promise.resolve() : undefined;
  }

  override destroy(): Promise<void> {
    return Promise.resolve();
  }
}

function modelRequestOf({ path, method, headers, body }: Dispatcher.DispatchOptions, user: string): ModelRequest {
  const [pathname = "", query = ""] = path.split("?");
  return {
    method,
    path: pathname,
    query: new URLSearchParams(query),
    headers: headers as Record<string, string>,
    body: typeof body === "string" ? body : "",
    user,
  };
}

/** Orders what follows on one connection, however long each takes. */
const IN_ORDER_MS = 0.001;

/** One request and its answer. */
class Exchange implements Dispatcher.DispatchController {
  aborted = false;
  reason: Error | null = null;
  readonly paused = false;
  readonly #options: Way;
  readonly #process: SimProcess;
  readonly #handler: Dispatcher.DispatchHandler;
  readonly #onEnd: ReturnType<OnExchange>;
  #isOver = false;
  #lastAt = 0;
  #endWatch: (() => void) | undefined;
  #forgetCrashes: (() => void)[] = [];

  constructor(
    options: Way,
    process: SimProcess,
    { handler, onEnd }: { readonly handler: Dispatcher.DispatchHandler; readonly onEnd: ReturnType<OnExchange> },
  ) {
    this.#options = options;
    this.#process = process;
    this.#handler = handler;
    this.#onEnd = onEnd;
  }

  begin(request: ModelRequest, fate: Fate): void {
    this.#handler.onRequestStart?.(this, {});
    if (!this.#isOver) this.#options.schedule.untilEnd(this.#abandon);
    if (this.#isOver) return;
    if (fate.kind === "answered") {
      this.#send(() => this.#answer(fate.answer));
      return;
    }
    const { peer } = fate;
    if (peer === undefined) {
      if (fate.kind === "reset") this.#send(() => this.#fail(reset()));
      return;
    }
    this.#forgetCrashes = [
      this.#process.onCrash(() => this.#end()),
      peer.process.onCrash(() => this.#send(() => this.#fail(reset()))),
    ];
    this.#options.schedule.in(this.#options.latency() + (fate.holdMs ?? 0), () => {
      if (!peer.isListening) return this.#send(() => this.#fail(refused()));
      peer.process.reach(() => void this.#serve(request, peer, fate));
    });
  }

  abort(reason: Error): void {
    if (this.#isOver) return;
    this.aborted = true;
    this.reason = reason;
    this.#fail(reason);
  }

  pause(): void {}

  resume(): void {}

  async #serve(request: ModelRequest, peer: Peer, fate: Fate): Promise<void> {
    const answer = await peer.handle(request);
    if (fate.kind === "reset") {
      this.#send(() => this.#fail(reset()));
    } else if (fate.kind === "delivered") {
      this.#send(() => this.#answer(passed(answer, fate.pass)));
    }
  }

  /** Has something happen at the client, after what was sent before. */
  #send(arrive: () => void): void {
    const { latency, schedule } = this.#options;
    const at = Math.max(schedule.now + latency(), this.#lastAt + IN_ORDER_MS);
    this.#lastAt = at;
    schedule.in(at - schedule.now, () => this.#process.reach(arrive));
  }

  #answer(answer: ModelAnswer): void {
    if (this.#isOver) return;
    this.#onEnd(answer);
    const { status, headers, body } = answer;
    this.#handler.onResponseStart?.(this, status, headers, "");
    if (typeof body === "string") {
      if (body !== "") this.#handler.onResponseData?.(this, Buffer.from(body));
      this.#finish();
      return;
    }
    const sink: WatchSink = {
      event: (line) => this.#send(() => this.#isOver || this.#handler.onResponseData?.(this, Buffer.from(`${line}\n`))),
      end: (error) => this.#send(() => (error === undefined ? this.#finish() : this.#fail(error))),
    };
    this.#endWatch = body(sink);
  }

  #finish(): void {
    if (this.#isOver) return;
    this.#end();
    this.#options.schedule.forgetEnd(this.#abandon);
    this.#handler.onResponseEnd?.(this, {});
  }

  #fail(error: Error): void {
    if (this.#isOver) return;
    this.#end();
    this.#options.schedule.forgetEnd(this.#abandon);
    this.#handler.onResponseError?.(this, error);
  }

  /** The world is over, before an answer came or before the process that has crashed could see it. */
  readonly #abandon = (): void => {
    this.#isOver = true;
    this.#handler.onResponseError?.(this, reset());
  };

  #end(): void {
    this.#isOver = true;
    this.#onEnd();
    this.#endWatch?.();
    this.#endWatch = undefined;
    for (const forget of this.#forgetCrashes) forget();
  }
}

function passed(answer: ModelAnswer, pass: ((body: string) => string) | undefined): ModelAnswer {
  const { body, status } = answer;
  return pass === undefined || status !== 200 || typeof body !== "string" ? answer : { ...answer, body: pass(body) };
}

function reset(): Error {
  return Object.assign(new Error("read ECONNRESET"), { code: "ECONNRESET" });
}

function refused(): Error {
  return Object.assign(new Error("connect ECONNREFUSED"), { code: "ECONNREFUSED" });
}
