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
/** The same where a failure has the baseline measured: the share of those has to be known better than that. */
const SHARE_ROUND = 40;
/** A median latency above the baseline times this says that requests queue up: others wait behind ours then. */
const TOLERANCE = 2;
/** Below this many milliseconds above the baseline a difference says nothing. */
const NOISE_MS = 2;
/** No larger share of failures is taken for one that comes whatever is sent. */
const MAX_USUAL_SHARE = 0.3;
/** So many standard deviations above the usual number of failures are no chance any more. */
const DEVIATIONS = 2;
const SHRINK_BY_LATENCY = 0.75;
const SHRINK_BY_FAILURE = 0.5;
/** The baseline moves with what others do, so it is measured again after this many milliseconds. */
const BASELINE_LIFETIME_MS = 15_000;

/**
 * Decides how many requests may be under way. It starts low, doubles while the latency stays near its own baseline, and
 * grows by one after it had to shrink for the first time. It shrinks with a round whose latency rose, and at once with more
 * failures (a 429, an error, an answer that does not come) than at a low limit: those that come there as well, such as of a webhook
 * with a hiccup, would not become fewer. The baseline is the latency and the share of failures at a low limit, measured again and
 * again.
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
  /** Whether a round was compared with the baseline: where requests take seconds, it is older than its lifetime after one. */
  #isBaselineUsed = false;
  /** The share of requests that fail at a low limit. */
  #usualShare = 0;
  /** Requests that the baseline is measured with. */
  #probeLength = MIN_ROUND;
  #changedAt = Number.NEGATIVE_INFINITY;
  #hasShrunk = false;
  #latencies: number[] = [];
  #failures = 0;

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
    if (begunAt >= this.#changedAt) {
      this.#latencies.push(now - begunAt);
      this.#afterRequest(now);
    }
  }

  /** The API server is overloaded, failed, or did not answer. Failures of requests that began together count once. */
  failed(begunAt: number, now: number): void {
    if (begunAt < this.#changedAt) {
      return;
    }
    this.#failures++;
    if (this.#limitAfterProbe !== undefined || !this.#isUnusual) {
      this.#afterRequest(now);
    } else if (this.#limit > this.#low) {
      this.#shrink(SHRINK_BY_FAILURE, now);
    } else {
      this.#measureBaseline(now, SHARE_ROUND);
    }
  }

  /** Whether more requests of this round failed than chance would have fail at a low limit. */
  get #isUnusual(): boolean {
    const usual = this.#usualShare * Math.max(MIN_ROUND, this.#latencies.length + this.#failures);
    return this.#failures > usual + DEVIATIONS * Math.sqrt(usual);
  }

  #afterRequest(now: number): void {
    const { length: answers } = this.#latencies;
    if (this.#limitAfterProbe !== undefined) {
      const mostFail = this.#failures >= MIN_ROUND && this.#failures > answers;
      if (mostFail) {
        this.#afterOutage(now);
      } else if (answers + this.#failures >= this.#probeLength) {
        this.#afterProbe(this.#limitAfterProbe, now);
      }
    } else if (answers + this.#failures >= Math.max(MIN_ROUND, 2 * this.#limit)) {
      this.#afterRound(medianOf(this.#latencies), now);
    }
  }

  /** At a low limit most requests fail: one at a time looks whether that is over. */
  #afterOutage(now: number): void {
    this.#limitAfterProbe = this.#low;
    this.#set(1, now);
  }

  #afterProbe(next: number, now: number): void {
    this.#baselineMs = medianOf(this.#latencies);
    this.#baselineAt = now;
    this.#isBaselineUsed = false;
    this.#usualShare = Math.min(MAX_USUAL_SHARE, this.#failures / (this.#latencies.length + this.#failures));
    this.#limitAfterProbe = undefined;
    this.#set(next, now);
  }

  #afterRound(medianMs: number, now: number): void {
    const isDue = this.#isBaselineUsed && now - this.#baselineAt >= BASELINE_LIFETIME_MS;
    this.#isBaselineUsed = true;
    if (isDue) {
      this.#measureBaseline(now, this.#usualShare > 0 ? SHARE_ROUND : MIN_ROUND);
    } else if (medianMs > this.#baselineMs * TOLERANCE + NOISE_MS) {
      this.#shrink(SHRINK_BY_LATENCY, now);
    } else {
      this.#set(this.#hasShrunk ? this.#limit + 1 : this.#limit * 2, now);
    }
  }

  #measureBaseline(now: number, length: number): void {
    this.#probeLength = length;
    this.#limitAfterProbe = this.#limit;
    this.#set(this.#low, now);
  }

  #shrink(factor: number, now: number): void {
    this.#hasShrunk = true;
    this.#set(Math.floor(this.#limit * factor), now);
  }

  #set(limit: number, now: number): void {
    this.#limit = Math.min(this.#max, Math.max(1, limit));
    this.#changedAt = now;
    this.#latencies = [];
    this.#failures = 0;
    this.#onChange?.(this.#limit);
  }
}

function medianOf(values: readonly number[]): number {
  return values.toSorted((a, b) => a - b)[Math.floor(values.length / 2)] ?? 0;
}
