/** A round has at least so many answers, or twice as many as requests at the same time, so that one slow answer decides nothing. */
const MIN_ROUND = 10;
/** So many failures, and most of the round, are an outage: it is not waited for the rest. */
const OUTAGE = 5;
/** So many standard deviations more failures are no chance any more. */
const DEVIATIONS = 2;
/** What takes longer than so many times the median counts as that: one slow answer among ten would say that all are slow. */
const SLOWEST = 4;

/** What one limit is like. */
export class Round {
  readonly limit: number;
  /** Requests that finish in a second. */
  readonly rate: number;
  /** The share of requests that fail, from 0 to 1, of how many. */
  readonly failing: number;
  readonly of: number;

  constructor(limit: number, rate: number, failing: number, of: number) {
    this.limit = limit;
    this.rate = rate;
    this.failing = failing;
    this.of = of;
  }

  /** Whether more requests fail than in `other`, beyond chance. */
  failsMoreThan(other: Round): boolean {
    const all = this.of + other.of;
    const share = (this.failing * this.of + other.failing * other.of) / all;
    const deviation = Math.sqrt(share * (1 - share) * (1 / this.of + 1 / other.of));
    return this.failing - other.failing > DEVIATIONS * deviation;
  }

  /** This one, moved by `weight` towards a later one. */
  smoothedBy(later: Round, weight: number): Round {
    const mix = (before: number, after: number): number => before + weight * (after - before);
    return new Round(
      later.limit,
      mix(this.rate, later.rate),
      mix(this.failing, later.failing),
      Math.max(this.of, later.of),
    );
  }
}

/** Counts what becomes of requests at one limit. All times are of one monotonic clock, in milliseconds. */
export class RoundOf {
  readonly #limit: number;
  /** When the limit was set: a request that began before tells of another limit. */
  readonly since: number;
  readonly #begunAt: number;
  #answers = 0;
  #failures = 0;
  readonly #latencies: number[] = [];

  constructor(limit: number, begunAt: number, since = begunAt) {
    this.#limit = limit;
    this.since = since;
    this.#begunAt = begunAt;
  }

  /** A request ended that says nothing of overload. */
  answered(begunAt: number, now: number): void {
    if (this.#isOfRound(begunAt)) {
      this.#answers++;
      this.#latencies.push(now - begunAt);
    }
  }

  /** A request failed. */
  failed(begunAt: number, now: number): void {
    if (this.#isOfRound(begunAt)) {
      this.#failures++;
      this.#latencies.push(now - begunAt);
    }
  }

  #isOfRound(begunAt: number): boolean {
    return begunAt >= this.since;
  }

  get #all(): number {
    return this.#answers + this.#failures;
  }

  /** Whether most requests fail. */
  get isOutage(): boolean {
    return this.#failures >= Math.max(OUTAGE, this.#limit) && this.#failures > 2 * this.#answers;
  }

  /** Whether it has lasted for `ms`, and enough requests ended. */
  isDone(now: number, ms: number): boolean {
    return this.#all >= Math.max(MIN_ROUND, 2 * this.#limit) && now - this.#begunAt >= ms;
  }

  /** What this limit is like; its rate follows from the mean latency by Little's law. */
  result(): Round {
    const sorted = this.#latencies.toSorted((a, b) => a - b);
    const longestMs = SLOWEST * (sorted[Math.floor(sorted.length / 2)] ?? 0);
    const totalMs = sorted.reduce((sum, ms) => sum + Math.min(ms, longestMs), 0);
    const meanMs = Math.max(totalMs / this.#all, 0.01);
    return new Round(
      this.#limit,
      ((this.#limit * 1_000) / meanMs) * (this.#answers / this.#all),
      this.#failures / this.#all,
      this.#all,
    );
  }
}
