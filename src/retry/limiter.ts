/** The default of `--max-in-flight`: requests at the same time, at most. */
export const DEFAULT_MAX_IN_FLIGHT = 16;

/** The largest `--max-in-flight`. */
export const MAX_IN_FLIGHT = 256;

/** How a {@link Limiter} behaves. */
export interface LimiterOptions {
  /** It never allows more requests at the same time, at least 1. */
  readonly maxInFlight: number;
  /** Told of every limit, the first one included. @default none */
  readonly onChange?: ((limit: number) => void) | undefined;
}

/** Requests at the same time to begin with, and to measure the baseline with. */
const LOW = 2;
/** A round is judged by so many answers, or twice the limit where that is more, so that one slow answer decides nothing. */
const MIN_ROUND = 10;
/** A median latency above the baseline times this says that requests queue up: others wait behind ours then. */
const TOLERANCE = 2;
/** Below this many milliseconds above the baseline a difference says nothing. */
const NOISE_MS = 2;
const SHRINK_BY_LATENCY = 0.75;
const SHRINK_BY_FAILURE = 0.5;
/** The baseline moves with what others do, so it is measured again after this many milliseconds. */
const BASELINE_LIFETIME_MS = 15_000;

/**
 * Decides how many requests may be under way. It starts low, doubles while the latency stays near its own baseline, and
 * grows by one after it had to shrink for the first time. It shrinks with a round whose latency rose, and at once with a
 * 429, an error or an answer that does not come. The baseline is the latency at a low limit, measured again and again.
 *
 * Only what began after the last change of the limit counts: it tells what that limit is like. All times are of one
 * monotonic clock, in milliseconds.
 */
export class Limiter {
  readonly #max: number;
  readonly #onChange: LimiterOptions["onChange"];
  #limit: number;
  /** The limit to return to once the baseline is measured; missing where that is not going on. */
  #limitAfterProbe: number | undefined;
  #baselineMs = Number.POSITIVE_INFINITY;
  #baselineAt = 0;
  #changedAt = Number.NEGATIVE_INFINITY;
  #hasShrunk = false;
  #latencies: number[] = [];

  constructor({ maxInFlight, onChange }: LimiterOptions) {
    this.#max = Math.max(1, maxInFlight);
    this.#onChange = onChange;
    this.#limit = this.#low;
    onChange?.(this.#limit);
    this.#limitAfterProbe = this.#limit;
  }

  /** Requests that may be under way now. */
  get limit(): number {
    return this.#limit;
  }

  get #low(): number {
    return Math.min(LOW, this.#max);
  }

  /** An answer came that says nothing of overload. */
  answered(begunAt: number, now: number): void {
    if (begunAt < this.#changedAt) {
      return;
    }
    this.#latencies.push(now - begunAt);
    if (this.#latencies.length >= Math.max(MIN_ROUND, 2 * this.#limit)) {
      const median = medianOf(this.#latencies);
      this.#latencies = [];
      this.#afterRound(median, now);
    }
  }

  /** The API server is overloaded, failed, or did not answer. Failures of requests that began together count once. */
  failed(begunAt: number, now: number): void {
    if (begunAt >= this.#changedAt) {
      // A baseline that is being measured is measured again.
      const before = this.#limitAfterProbe ?? this.#limit;
      this.#limitAfterProbe = undefined;
      this.#shrink(before, SHRINK_BY_FAILURE, now);
    }
  }

  #afterRound(medianMs: number, now: number): void {
    if (this.#limitAfterProbe !== undefined) {
      this.#baselineMs = medianMs;
      this.#baselineAt = now;
      this.#set(this.#limitAfterProbe, now);
      this.#limitAfterProbe = undefined;
    } else if (now - this.#baselineAt >= BASELINE_LIFETIME_MS || this.#baselineMs === Number.POSITIVE_INFINITY) {
      this.#limitAfterProbe = this.#limit;
      this.#set(this.#low, now);
    } else if (medianMs > this.#baselineMs * TOLERANCE + NOISE_MS) {
      this.#shrink(this.#limit, SHRINK_BY_LATENCY, now);
    } else {
      this.#set(this.#hasShrunk ? this.#limit + 1 : this.#limit * 2, now);
    }
  }

  #shrink(from: number, factor: number, now: number): void {
    this.#hasShrunk = true;
    this.#set(Math.floor(from * factor), now);
  }

  #set(limit: number, now: number): void {
    this.#limit = Math.min(this.#max, Math.max(1, limit));
    this.#changedAt = now;
    this.#latencies = [];
    this.#onChange?.(this.#limit);
  }
}

function medianOf(values: readonly number[]): number {
  return values.toSorted((a, b) => a - b)[Math.floor(values.length / 2)] ?? 0;
}
