import { ApiError } from "../../../src/kube/errors.ts";
import type { Connection, HttpAnswer, HttpRequest, Send } from "../../../src/kube/http.ts";
import type { ModelAnswer, ModelRequest, WatchSink } from "../model/answers.ts";
import type { SimProcess } from "./process.ts";
import type { Schedule } from "./schedule.ts";

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

  /** How a process sends requests; its name is its user. */
  sendOf(process: SimProcess): Send {
    const latency = this.#options.latencyOf(process.name);
    const way = { ...this.#options, process, latency, pinned: new WeakMap<Connection, Peer>() };
    return (asked) => new Exchange(way, asked).begin();
  }
}

/** What a network is made of, as one process sees it. */
interface Way extends NetworkOptions {
  readonly process: SimProcess;
  readonly latency: Latency;
  /** Where each connection leads that is no pool, until it breaks. */
  readonly pinned: WeakMap<Connection, Peer>;
}

/** Orders what follows on one connection, however long each takes. */
const IN_ORDER_MS = 0.001;

/** One request and its answer. */
class Exchange {
  readonly #way: Way;
  readonly #asked: HttpRequest;
  readonly #answer = Promise.withResolvers<HttpAnswer>();
  #request: ModelRequest;
  #isOver = false;
  #lastAt = 0;
  #cancelTimer: () => void = nothing;
  #forgetCrashes: (() => void)[] = [];
  #endWatch: () => void = nothing;
  /** What has come of a stream and was not read yet. */
  readonly #lines: string[] = [];
  #failure: { readonly error: unknown } | undefined;
  #wakeReader: () => void = nothing;

  constructor(way: Way, asked: HttpRequest) {
    const { body = "", method, path } = asked;
    const headers = { "user-agent": "ksvm", ...asked.headers };
    this.#way = way;
    this.#asked = asked;
    this.#request = { method, path, query: new URLSearchParams(asked.query), headers, body, user: way.process.name };
  }

  begin(): Promise<HttpAnswer> {
    const { signal, timeoutMs } = this.#asked;
    const { process, schedule } = this.#way;
    schedule.untilEnd(this.#abandon);
    if (this.#isOver) return this.#answer.promise;
    signal.addEventListener("abort", this.#onAbort, { once: true });
    const timeUp = (): void => this.#fail(this.#unanswered(`no answer within ${timeoutMs / 1_000} s`));
    this.#cancelTimer = process.clock.timer(timeoutMs, timeUp);
    this.#deliver();
    return this.#answer.promise;
  }

  #deliver(): void {
    const { address, connection } = this.#asked;
    const { edge, latency, pinned, process, route, schedule } = this.#way;
    const edged = edge.request?.(this.#request, address) ?? this.#request;
    if ("status" in edged) return this.#send(() => this.#arrive(edged));
    this.#request = edged;
    const server = edge.server?.(edged, address) ?? address;
    const fate = route(edged, server, connection && pinned.get(connection));
    if (fate.kind === "answered") return this.#send(() => this.#arrive(fate.answer));
    const { peer } = fate;
    if (connection !== undefined && peer !== undefined) pinned.set(connection, peer);
    if (peer === undefined) {
      if (fate.kind === "reset") this.#send(() => this.#fail(this.#unanswered("read ECONNRESET")));
      return;
    }
    const onCrash = (): void => this.#send(() => this.#fail(this.#unanswered("read ECONNRESET")));
    this.#forgetCrashes = [process.onCrash(this.#crash), peer.process.onCrash(onCrash)];
    schedule.in(latency() + (fate.holdMs ?? 0), () => {
      if (!peer.isListening) return this.#send(() => this.#fail(this.#unanswered("connect ECONNREFUSED")));
      peer.process.reach(() => void this.#serve(peer, fate));
    });
  }

  async #serve(peer: Peer, { kind }: Fate): Promise<void> {
    const { edge } = this.#way;
    const answer = await peer.handle(this.#request);
    if (kind === "reset") this.#send(() => this.#fail(this.#unanswered("read ECONNRESET")));
    if (kind !== "delivered") return;
    const { body } = answer;
    const edged =
      typeof body === "string" ? edge.answer?.(this.#request, { ...answer, body }, this.#asked.address) : undefined;
    this.#send(() => this.#arrive(edged ?? answer));
  }

  /** Has something happen at the client, after what was sent before. */
  #send(arrive: () => void): void {
    const { latency, process, schedule } = this.#way;
    const at = Math.max(schedule.now + latency(), this.#lastAt + IN_ORDER_MS);
    this.#lastAt = at;
    schedule.in(at - schedule.now, () => process.reach(arrive));
  }

  #arrive({ body, headers, status }: ModelAnswer): void {
    if (this.#isOver) return;
    const { edge, onAnswer } = this.#way;
    onAnswer(this.#request, { status, headers, body });
    const isStream = this.#asked.isStream && status === 200;
    if (!isStream) {
      this.#end();
      return this.#answer.resolve({ status, headers, text: typeof body === "string" ? body : "" });
    }
    this.#cancelTimer();
    if (typeof body === "string") {
      this.#lines.push(...body.split("\n"));
      this.#end();
    } else {
      const sink: WatchSink = {
        event: (told) => {
          const line = edge.event?.(this.#request, told) ?? told;
          this.#send(() => {
            this.#lines.push(line);
            this.#wakeReader();
          });
        },
        end: (error) =>
          this.#send(() => (error === undefined ? this.#end() : this.#fail(this.#unanswered(error.message)))),
      };
      this.#endWatch = body(sink);
    }
    this.#answer.resolve({ status, headers, text: "", lines: this.#read() });
  }

  /** The lines of a stream as they arrive. Whoever stops reading ends it. */
  async *#read(): AsyncGenerator<string> {
    try {
      for (;;) {
        if (this.#failure !== undefined) throw this.#failure.error;
        const line = this.#lines.shift();
        if (line !== undefined) yield line;
        else if (this.#isOver) return;
        else await new Promise<void>((resolve) => (this.#wakeReader = resolve));
      }
    } finally {
      this.#end();
    }
  }

  readonly #onAbort = (): void => this.#fail(this.#asked.signal.reason);

  /** Nothing reaches a process that has crashed. */
  readonly #crash = (): void => {
    this.#isOver = true;
    this.#endWatch();
  };

  /** The world is over, before an answer came or before the process that has crashed could see it. */
  readonly #abandon = (): void => {
    this.#isOver = false;
    this.#fail(this.#unanswered("the world is over"));
  };

  #unanswered(why: string): ApiError {
    const { address, method, path } = this.#asked;
    return new ApiError(`${method} ${path}`, 0, `no answer from ${address}: ${why}`);
  }

  /** Its connection is broken, too. */
  #fail(error: unknown): void {
    if (this.#isOver) return;
    const { connection } = this.#asked;
    if (connection !== undefined) this.#way.pinned.delete(connection);
    this.#failure = { error };
    this.#answer.reject(error);
    this.#end();
  }

  #end(): void {
    if (this.#isOver) return;
    this.#isOver = true;
    this.#cancelTimer();
    this.#endWatch();
    this.#wakeReader();
    this.#asked.signal.removeEventListener("abort", this.#onAbort);
    this.#way.schedule.forgetEnd(this.#abandon);
    for (const forget of this.#forgetCrashes) forget();
  }
}

function nothing(): void {}
