import type { Limiter } from "../../../src/old/retry/limiter.ts";

/** What a {@link SimulatedServer} is like. */
export interface ServerOptions {
  /** Milliseconds that a request takes. */
  readonly latencyMs: number;
  /** Requests that it works on at the same time; all others wait in a queue. */
  readonly capacity: number;
  /** The share of requests that take `slowMs`. @default none */
  readonly slowShare?: number;
  readonly slowMs?: number;
  /** The share of requests that fail, by how many are under way. @default none */
  readonly failingShare?: (inFlight: number) => number;
}

interface Request {
  readonly begunAt: number;
  readonly endsAt: number;
  readonly fails: boolean;
}

/** An API server in fake time, which always has as many requests under way as a limiter allows. Each latency varies by a fifth. */
export class SimulatedServer {
  latencyMs: number;
  capacity: number;
  failingShare: (inFlight: number) => number;
  readonly #options: ServerOptions;
  #now = 0;
  #seed = 1;
  readonly #queue: number[] = [];
  #working: Request[] = [];

  constructor(options: ServerOptions) {
    this.#options = options;
    this.latencyMs = options.latencyMs;
    this.capacity = options.capacity;
    this.failingShare = options.failingShare ?? (() => 0);
  }

  /** Works for so many milliseconds. */
  drive(
    limiter: Limiter,
    ms: number,
  ): {
    readonly now: number;
    readonly finished: number;
    readonly limits: readonly { readonly at: number; readonly limit: number }[];
  } {
    const until = this.#now + ms;
    const limits = [{ at: this.#now, limit: limiter.limit }];
    let finished = 0;
    for (;;) {
      this.#fill(limiter.limit);
      const next = this.#working.reduce((first, request) => (request.endsAt < first.endsAt ? request : first));
      if (next.endsAt > until) {
        this.#now = until;
        return { now: until, finished, limits };
      }
      this.#now = next.endsAt;
      this.#working = this.#working.filter((request) => request !== next);
      limiter[next.fails ? "failed" : "answered"](next.begunAt, this.#now);
      finished += next.fails ? 0 : 1;
      if (limits.at(-1)?.limit !== limiter.limit) {
        limits.push({ at: this.#now, limit: limiter.limit });
      }
    }
  }

  #fill(limit: number): void {
    while (this.#queue.length + this.#working.length < limit) {
      this.#queue.push(this.#now);
    }
    while (this.#working.length < this.capacity) {
      const begunAt = this.#queue.shift();
      if (begunAt === undefined) {
        break;
      }
      const { slowShare = 0, slowMs = 0 } = this.#options;
      const latencyMs = this.#random() < slowShare ? slowMs : this.latencyMs * (0.9 + 0.2 * this.#random());
      const fails = this.#random() < this.failingShare(this.#queue.length + this.#working.length + 1);
      this.#working.push({ begunAt, endsAt: this.#now + latencyMs, fails });
    }
  }

  /** https://en.wikipedia.org/wiki/Lehmer_random_number_generator */
  #random(): number {
    this.#seed = (this.#seed * 48_271) % 2_147_483_647;
    return this.#seed / 2_147_483_647;
  }
}
