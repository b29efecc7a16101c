import type { Clock } from "../../clock.ts";
import { failureKindOf, isReinitializing } from "../kube/failure.ts";
import type { Limiter } from "./limiter.ts";

/** The default of `--max-qps`: no limit. */
export const DEFAULT_MAX_QPS = Number.POSITIVE_INFINITY;

/** How many pieces of work may wait without counting as under way: while most requests succeed, and while they do not. */
const MAX_ASIDE = { succeeding: 1_024, failing: 64 } as const;
/** How much the share of requests that succeed is smoothed from one to the next. */
const SMOOTHING = 0.02;

/** How much work may be under way. */
export interface PacerOptions {
  readonly clock: Clock;
  /** Requests at the same time, at least 1. */
  readonly maxInFlight: number;
  /** Requests begun in a second; `Infinity` for no limit. */
  readonly maxQps: number;
  /** Told of every wait for a slot, in milliseconds. @default none */
  readonly onWait?: ((ms: number) => void) | undefined;
  /** Allows fewer at the same time by what it learns of them. @default always maxInFlight */
  readonly limiter?: Limiter;
}

/** Runs work on many items within the limits on requests under way and requests per second. */
export class Pacer {
  readonly #options: PacerOptions;
  #nextSlot: number;
  #inFlight = 0;
  #aside = 0;
  #answers = 0;
  #succeeding = 1;
  readonly #waiting: (() => void)[] = [];

  constructor(options: PacerOptions) {
    this.#options = options;
    this.#nextSlot = options.clock.monotonic();
  }

  /**
   * Calls `work` for each item, in order. The first error, of `items` or of `work`, ends it: no item is begun after it, and it is
   * thrown once those under way are done.
   */
  async forEach<T>(
    items: Iterable<T> | AsyncIterable<T>,
    work: (item: T) => Promise<void>,
    signal: AbortSignal,
  ): Promise<void> {
    const failures: unknown[] = [];
    const underWay = new Set<Promise<void>>();
    const fail = (error: unknown): void => void failures.push(error);
    const begin = (item: T): void => {
      const task = work(item)
        .catch(fail)
        .finally(() => {
          underWay.delete(task);
          this.#leave();
        });
      underWay.add(task);
    };
    try {
      for await (const item of items) {
        await this.#enter();
        const isGoingOn = failures.length === 0 && (await this.slot(signal).then(() => true, fail));
        if (isGoingOn !== true) {
          this.#leave();
          break;
        }
        begin(item);
      }
    } catch (error) {
      fail(error);
    }
    await Promise.all(underWay);
    if (failures.length > 0) {
      throw failures[0];
    }
  }

  /** Sends one request beside the work of {@link forEach}, within the same limits. @throws what `request` throws. */
  async beside<T>(request: () => Promise<T>, signal: AbortSignal): Promise<T> {
    await this.#enter();
    try {
      await this.slot(signal);
      return await request();
    } finally {
      this.#leave();
    }
  }

  /**
   * Waits, as before another try, without counting as under way, so that others go on. Where many do that already, and most
   * requests fail, it counts all the same: what fails for all of them would only be asked for more often.
   * @param signal ends the work: an item that gets its place back after that throws, and sends no further request
   * @throws what `wait` throws, at once; the signal's reason.
   */
  async aside(wait: () => Promise<void>, signal: AbortSignal): Promise<void> {
    const { failing, succeeding } = MAX_ASIDE;
    if (this.#aside >= (this.#succeeding > 0.5 ? succeeding : failing)) {
      return wait();
    }
    this.#aside++;
    this.#leave();
    try {
      await wait();
    } catch (error) {
      this.#inFlight++;
      throw error;
    } finally {
      this.#aside--;
    }
    await this.#enter();
    signal.throwIfAborted();
  }

  /**
   * Sends one request of the work, so that the limiter learns how it goes.
   * @throws what `request` throws.
   */
  async observe<T>(request: () => Promise<T>): Promise<T> {
    const { clock, limiter } = this.#options;
    const begunAt = clock.monotonic();
    try {
      const answer = await request();
      this.#answers++;
      this.#ended(1);
      limiter?.answered(begunAt, clock.monotonic());
      return answer;
    } catch (error) {
      const kind = failureKindOf(error);
      if (kind === "transient" && !isReinitializing(error)) {
        this.#ended(0);
        limiter?.failed(begunAt, clock.monotonic());
      } else if (kind !== undefined) {
        limiter?.answered(begunAt, clock.monotonic());
      }
      throw error;
    }
  }

  /** @param success 1 or, of a request that failed, 0 */
  #ended(success: number): void {
    this.#succeeding += SMOOTHING * (success - this.#succeeding);
  }

  /** Requests of the work that were answered, which tells whether it goes on. */
  get answers(): number {
    return this.#answers;
  }

  /** What {@link feelWhile} tells what it feels; missing where nothing learns of it, or `maxQps` leaves room for others anyway. */
  get courteous(): Limiter | undefined {
    const { limiter, maxQps } = this.#options;
    return maxQps === Number.POSITIVE_INFINITY ? limiter : undefined;
  }

  get #limit(): number {
    return this.#options.limiter?.limit ?? this.#options.maxInFlight;
  }

  async #enter(): Promise<void> {
    if (this.#inFlight < this.#limit) {
      this.#inFlight++;
    } else {
      await new Promise<void>((resolve) => this.#waiting.push(resolve));
    }
  }

  /** The limit may have moved while this one was under way: as many go on as have room now. */
  #leave(): void {
    this.#inFlight--;
    while (this.#inFlight < this.#limit && this.#waiting.length > 0) {
      // Counted here, so that no other request takes the room before it wakes up.
      this.#inFlight++;
      this.#waiting.shift()?.();
    }
  }

  /**
   * Waits until one more request may be sent by `maxQps`; {@link forEach} does so before each item. Slots lie evenly spread; one
   * that was not used is not saved up, so there are no bursts.
   */
  async slot(signal: AbortSignal): Promise<void> {
    signal.throwIfAborted();
    const { clock, maxQps, onWait } = this.#options;
    if (maxQps === Number.POSITIVE_INFINITY) {
      return;
    }
    const now = clock.monotonic();
    const slot = Math.max(now, this.#nextSlot);
    this.#nextSlot = slot + 1_000 / maxQps;
    if (slot > now) {
      onWait?.(slot - now);
      await clock.sleep(slot - now, signal);
    }
  }
}
