import type { Carrier } from "../../../src/old/kube/connect/sessions.ts";
import type { ModelAnswer, ModelRequest, WatchSink } from "../model/answers.ts";
import type { SimProcess } from "./process.ts";
import type { Schedule } from "./schedule.ts";
import { Dispatcher } from "undici";

/** What answers requests at the far end: an API server with the process that it runs in. */
export interface Peer {
  readonly process: SimProcess;
  /** Whether it takes requests; false for one that has ended, and for one that has taken its last request. */
  readonly isListening: boolean;
  handle(request: ModelRequest): Promise<ModelAnswer>;
}

/** What becomes of one request on its way. */
export type Fate = {
  /** How much longer it is on its way than others, in milliseconds. @default 0 */
  readonly holdMs?: number;
} & (
  | { readonly kind: "delivered"; readonly peer: Peer }
  /** Something between answers in the place of an API server, and passes nothing on. */
  | { readonly kind: "answered"; readonly answer: TextAnswer }
  /** The connection breaks: before the request arrives, or with the answer on its way. */
  | { readonly kind: "reset"; readonly peer: Peer | undefined }
  /** Nothing comes back, ever: the request or its answer is lost, and the connection looks alive. */
  | { readonly kind: "lost"; readonly peer: Peer | undefined }
);

/** Decides about one request to a base URL. `pinned` is the peer that the connection leads to, where there is one. */
type Route = (request: ModelRequest, server: string, pinned: Peer | undefined) => Fate;

/** How long the next thing is on its way from or to a process, in milliseconds. */
type Latency = () => number;

/** What a sabotage does to ksvm where it sends and gets, as if it had sent or understood something else. */
export interface Edge {
  /** Where a request is sent that is meant for a server. */
  server?(request: ModelRequest, server: string): string;
  /** What is sent in the place of a request, or an answer in its place. */
  request?(request: ModelRequest, server: string): ModelRequest | TextAnswer;
  /** What is understood of an answer of an API server. */
  answer?(request: ModelRequest, answer: TextAnswer, server: string): TextAnswer;
  /** What is understood of an event of a watch. */
  event?(request: ModelRequest, line: string): string;
}

/** An answer with a whole body. */
export type TextAnswer = ModelAnswer & { readonly body: string };

/** What a {@link Network} is made of. */
interface NetworkOptions {
  readonly schedule: Schedule;
  readonly route: Route;
  /** Of a process. */
  readonly latencyOf: (process: string) => Latency;
  /** Told of each answer that comes back to a process. */
  readonly onAnswer: (request: ModelRequest, answer: ModelAnswer) => void;
  readonly edge: Edge;
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
    const sent = modelRequestOf(options, this.#process.name);
    const edged = this.#options.edge.request?.(sent, this.#server) ?? sent;
    const request = "status" in edged ? sent : edged;
    const exchange = new Exchange(this.#options, this.#process, { handler, request, server: this.#server });
    const fate: Fate =
      "status" in edged
        ? { kind: "answered", answer: edged }
        : this.#options.route(
            request,
            this.#options.edge.server?.(request, this.#server) ?? this.#server,
            this.#pinned,
          );
    if (this.#onConnect !== undefined) {
      this.#connect(fate, this.#onConnect);
    }
    exchange.begin(fate);
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
  readonly #request: ModelRequest;
  readonly #server: string;
  #isOver = false;
  #lastAt = 0;
  #endWatch: (() => void) | undefined;
  #forgetCrashes: (() => void)[] = [];

  constructor(
    options: Way,
    process: SimProcess,
    of: { readonly handler: Dispatcher.DispatchHandler; readonly request: ModelRequest; readonly server: string },
  ) {
    this.#options = options;
    this.#process = process;
    this.#handler = of.handler;
    this.#request = of.request;
    this.#server = of.server;
  }

  begin(fate: Fate): void {
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
      peer.process.reach(() => void this.#serve(peer, fate));
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

  async #serve(peer: Peer, fate: Fate): Promise<void> {
    const answer = this.#edged(await peer.handle(this.#request));
    if (fate.kind === "reset") {
      this.#send(() => this.#fail(reset()));
    } else if (fate.kind === "delivered") {
      this.#send(() => this.#answer(answer));
    }
  }

  #edged(answer: ModelAnswer): ModelAnswer {
    const { body } = answer;
    if (typeof body !== "string") return answer;
    return this.#options.edge.answer?.(this.#request, { ...answer, body }, this.#server) ?? answer;
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
    this.#options.onAnswer(this.#request, answer);
    const { status, headers, body } = answer;
    this.#handler.onResponseStart?.(this, status, headers, "");
    if (typeof body === "string") {
      if (body !== "") this.#handler.onResponseData?.(this, Buffer.from(body));
      this.#finish();
      return;
    }
    const sink: WatchSink = {
      event: (told) => {
        const line = this.#options.edge.event?.(this.#request, told) ?? told;
        this.#send(() => this.#isOver || this.#handler.onResponseData?.(this, Buffer.from(`${line}\n`)));
      },
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
    this.#endWatch?.();
    this.#endWatch = undefined;
    for (const forget of this.#forgetCrashes) forget();
  }
}

function reset(): Error {
  return Object.assign(new Error("read ECONNRESET"), { code: "ECONNRESET" });
}

function refused(): Error {
  return Object.assign(new Error("connect ECONNREFUSED"), { code: "ECONNREFUSED" });
}
