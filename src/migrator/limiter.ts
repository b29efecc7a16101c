import type { Client } from "../kube/client.ts";
import { whose } from "../kube/errors.ts";

/** Requests at the same time, at most. At 50 ms a round trip 64 of them are some 1,000 a second. */
export const DEFAULT_MAX_IN_FLIGHT = 64;

interface LimiterOptions {
  /** @default {@link DEFAULT_MAX_IN_FLIGHT} */
  readonly maxInFlight?: number | undefined;
  /** Objects begun in a second. @default no limit */
  readonly maxQps?: number | undefined;
}

const FIRST = 4;
/** So many requests wait at the API server at any time: enough to keep it busy, few enough for others. */
const FEWEST_QUEUED = 1;
const MOST_QUEUED = 2;
/** Milliseconds between two looks at how long a request takes when few are under way. */
const LOOK_EVERY_MS = 10_000;
/** How much longer a request may take than the quickest one did at the look before, and be no queue. */
const AGING = 1.25;
/** So many may wait for another try without counting as under way. */
const MAX_ASIDE = 64;
/** Requests of such a look. */
const LOOK_REQUESTS = 6;
const LOOK_LIMIT = 2;

/**
 * Decides how many requests are under way at the same time, as TCP Vegas decides how many packets are: a request that
 * takes longer than the quickest one of late waits in a queue, and by Little's law the queue has `limit * (1 - quickest
 * / usual)` requests. The limit is such that a few wait. An API server that is busy with others has longer queues, so
 * that less is asked of it; one that is far away has none until enough is under way.
 *
 * https://en.wikipedia.org/wiki/TCP_Vegas
 */
export class Limiter {
  readonly #client: Client;
  readonly #max: number;
  readonly #pauseMs: number;
  #limit: number;
  #inFlight = 0;
  #aside = 0;
  readonly #waiting: (() => void)[] = [];
  #nextSlot = 0;
  /** Of the requests since the limit was last decided on, in milliseconds. */
  #latencies: number[] = [];
  #isFirstClimb = true;
  /** How long a request takes where none waits, in milliseconds. */
  #quickestMs = Number.POSITIVE_INFINITY;
  #lookedAt: number;
  /** While it looks: the limit to return to, and what was seen. */
  #look: { readonly limit: number; readonly latencies: number[] } | undefined;

  constructor(client: Client, { maxInFlight = DEFAULT_MAX_IN_FLIGHT, maxQps }: LimiterOptions) {
    this.#client = client;
    this.#max = Math.max(1, maxInFlight);
    this.#pauseMs = maxQps === undefined ? 0 : 1_000 / maxQps;
    this.#limit = Math.min(FIRST, this.#max);
    this.#lookedAt = client.clock.monotonic();
  }

  /** Requests that may be under way now. */
  get limit(): number {
    return this.#limit;
  }

  /**
   * Calls `work` for each item, as many at a time as the limit allows. The first error ends it: no item is begun after
   * it, and it is thrown once those under way are done.
   */
  async forEach<T>(items: Iterable<T>, work: (item: T) => Promise<void>, signal: AbortSignal): Promise<void> {
    let failure: { readonly error: unknown } | undefined;
    const underWay = new Set<Promise<void>>();
    for (const item of items) {
      await this.#enter();
      try {
        await this.#slot(signal);
      } catch (error) {
        failure ??= { error };
      }
      if (failure !== undefined) {
        this.#leave();
        break;
      }
      const task = work(item)
        .catch((error: unknown) => {
          failure ??= { error };
        })
        .finally(() => {
          underWay.delete(task);
          this.#leave();
        });
      underWay.add(task);
    }
    await Promise.all(underWay);
    if (failure !== undefined) throw failure.error;
  }

  /** Sends one request of the work, and learns from how it goes. */
  async observe<T>(request: () => Promise<T>): Promise<T> {
    const { clock } = this.#client;
    const start = clock.monotonic();
    try {
      const answer = await request();
      this.#answered(clock.monotonic() - start);
      return answer;
    } catch (error) {
      if (whose(error) === "apiServer") this.#failed();
      throw error;
    }
  }

  /** Waits without counting as under way, so that others go on, unless many do that already. */
  async aside(wait: () => Promise<void>): Promise<void> {
    if (this.#aside >= MAX_ASIDE) return wait();
    this.#aside++;
    this.#leave();
    try {
      await wait();
    } finally {
      this.#aside--;
      await this.#enter();
    }
  }

  async #enter(): Promise<void> {
    if (this.#inFlight < this.#limit) this.#inFlight++;
    else await new Promise<void>((resolve) => this.#waiting.push(resolve));
  }

  #leave(): void {
    this.#inFlight--;
    this.#set(this.#limit);
  }

  /** Slots of `--max-qps` lie evenly spread. One that was not used is not saved up. */
  async #slot(signal: AbortSignal): Promise<void> {
    signal.throwIfAborted();
    if (this.#pauseMs === 0) return;
    const now = this.#client.clock.monotonic();
    const slot = Math.max(now, this.#nextSlot);
    this.#nextSlot = slot + this.#pauseMs;
    if (slot > now) await this.#client.clock.sleep(slot - now, signal);
  }

  #answered(ms: number): void {
    if (this.#look !== undefined) return this.#looked(this.#look, ms);
    this.#latencies.push(ms);
    this.#quickestMs = Math.min(this.#quickestMs, Math.max(ms, 0.1));
    // Twice as many as are under way: those of the limit before are gone by then.
    if (this.#latencies.length < Math.max(8, 2 * this.#limit)) return;
    const usualMs = median(this.#latencies);
    this.#latencies = [];
    const queued = this.#limit * (1 - this.#quickestMs / Math.max(usualMs, this.#quickestMs));
    if (queued < FEWEST_QUEUED) this.#set(this.#isFirstClimb ? this.#limit * 1.5 : this.#limit + 1);
    else this.#isFirstClimb = false;
    if (queued > MOST_QUEUED) this.#set(this.#limit - Math.max(1, Math.floor((queued - MOST_QUEUED) / 2)));
    this.#lookWhenDue();
  }

  /** What was the quickest then says nothing any more once the API server, or the objects, became others. */
  #lookWhenDue(): void {
    const now = this.#client.clock.monotonic();
    if (now - this.#lookedAt < LOOK_EVERY_MS || this.#limit <= LOOK_LIMIT) return;
    this.#look = { limit: this.#limit, latencies: [] };
    this.#set(LOOK_LIMIT);
  }

  #looked(look: { readonly limit: number; readonly latencies: number[] }, ms: number): void {
    // Those that were under way at the limit before are no sample.
    if (this.#inFlight <= LOOK_LIMIT) look.latencies.push(ms);
    if (look.latencies.length < LOOK_REQUESTS) return;
    this.#look = undefined;
    this.#lookedAt = this.#client.clock.monotonic();
    this.#quickestMs = Math.max(0.1, Math.min(this.#quickestMs * AGING, ...look.latencies));
    this.#set(look.limit);
  }

  /** The API server is overloaded, or does not answer: half as much, as often as that comes. */
  #failed(): void {
    this.#isFirstClimb = false;
    this.#latencies = [];
    this.#look = undefined;
    this.#lookedAt = this.#client.clock.monotonic();
    this.#set(this.#limit / 2);
  }

  #set(limit: number): void {
    this.#limit = Math.min(this.#max, Math.max(1, Math.floor(limit)));
    // Counted here, so that no other one takes the room before it wakes up.
    for (; this.#inFlight < this.#limit && this.#waiting.length > 0; this.#inFlight++) this.#waiting.shift()?.();
  }
}

function median(values: readonly number[]): number {
  return values.toSorted((a, b) => a - b)[Math.floor(values.length / 2)] ?? 0;
}
