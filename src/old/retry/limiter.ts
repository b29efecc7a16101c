import { type Round, RoundOf } from "./limiter-round.ts";

/** The default of `--max-in-flight`: requests at the same time, at most. At 50 ms a round trip 64 of them are some 1,000 a second. */
export const DEFAULT_MAX_IN_FLIGHT = 64;

/** The largest `--max-in-flight`. */
export const MAX_IN_FLIGHT = 256;

/** How a {@link Limiter} behaves. */
export interface LimiterOptions {
  /** It never allows more requests at the same time, at least 1. */
  readonly maxInFlight: number;
  /** Told of every limit, the first one included. @default none */
  readonly onChange?: ((limit: number) => void) | undefined;
}

/** Requests at the same time to begin with. */
const FIRST = 4;
/** Twice the requests at the same time must finish so many times as many to be worth it. */
const WORTH_IT = 1.05;
/** Half the requests at the same time must finish so many times as many to do. */
const WILL_DO = 0.95;
/** At the same limit, a smaller share of the requests that it finished before says that the API server became busy. */
const BUSY = 0.6;
/** How much the requests that finish are smoothed from round to round. */
const SMOOTHING = 0.3;
/** Milliseconds between two trials of another limit; it doubles while they change nothing. */
const HOLD_MS = 4_000;
const LONGEST_HOLD_MS = 32_000;
/** A round that decides takes so many milliseconds, except while the limit grows for the first time. */
const ROUND_MS = 250;
/** So many milliseconds, and so many times what is usual: a client that is not of this run waits because of it. */
const FELT_MS = 15;
const FELT_TIMES = 3;
/** What remains of the limit once others wait, and the least that they take from it. */
const COURTESY = 0.75;
const LEAST_BY_COURTESY = 2;
/** Milliseconds until a limit is tried again that others waited at. */
const COURTESY_MS = 8_000;
/** How long the shortest wait of others counts as the usual one, in milliseconds. */
const USUAL_LIFETIME_MS = 30_000;

/** What a trial of another limit is compared with. */
interface Trial {
  readonly from: Round;
  readonly direction: "up" | "down";
}

/**
 * Decides how many requests may be under way: the fewest that finish almost as many requests in a second as twice as many
 * would, and no more than others notice. It climbs: it compares what finishes at one limit, by Little's law, with twice and with
 * half of it, from time to time, and at once where it became less. Requests that fail finish nothing, so that a limit is no
 * better whose requests are refused, and failures that come at every limit change nothing. What others notice is told by
 * {@link felt}.
 *
 * Only what began after the last change of the limit counts: it tells what that limit is like. All times are of one
 * monotonic clock, in milliseconds.
 */
export class Limiter {
  readonly #max: number;
  readonly #onChange: LimiterOptions["onChange"];
  #limit: number;
  #round: RoundOf;
  #trial: Trial | undefined;
  /** What is usual at this limit, where no trial is under way. */
  #usual: Round | undefined;
  #isFirstClimb = true;
  #nextDirection: Trial["direction"] = "up";
  #nextTrialAt = 0;
  #holdMs = HOLD_MS;
  /** What others leave, and when that was last changed. */
  #ceiling = Number.POSITIVE_INFINITY;
  #ceilingAt = 0;
  /** Whether {@link felt} will tell what others feel, and whether it did for this limit. */
  #feels = false;
  #isFelt = false;
  #shortestMs = Number.POSITIVE_INFINITY;
  #shortestBefore = Number.POSITIVE_INFINITY;
  #shortestSince = Number.NEGATIVE_INFINITY;

  constructor({ maxInFlight, onChange }: LimiterOptions) {
    this.#max = Math.max(1, maxInFlight);
    this.#onChange = onChange;
    this.#limit = Math.min(FIRST, this.#max);
    this.#round = new RoundOf(this.#limit, Number.NEGATIVE_INFINITY);
    onChange?.(this.#limit);
  }

  /** Requests that may be under way now. */
  get limit(): number {
    return this.#limit;
  }

  /** An answer came that says nothing of overload. */
  answered(begunAt: number, now: number): void {
    this.#round.answered(begunAt, now);
    this.#decide(now);
  }

  /** The API server is overloaded, failed, or did not answer. */
  failed(begunAt: number, now: number): void {
    this.#round.failed(begunAt, now);
    this.#decide(now);
  }

  /** Whether {@link felt} will be told, until this is called again: then the limit does not grow before that shows what it does. */
  set feels(feels: boolean) {
    this.#feels = feels;
  }

  /** A small request of its own was answered, as those of other clients are: it shows how long they wait. */
  felt(begunAt: number, now: number): void {
    const ms = now - begunAt;
    this.#keepShortest(ms, now);
    if (begunAt < this.#round.since) {
      return;
    }
    this.#isFelt = true;
    const usualMs = Math.min(this.#shortestMs, this.#shortestBefore);
    if (ms > Math.max(FELT_MS, usualMs * FELT_TIMES)) {
      this.#ceiling = Math.max(Math.min(LEAST_BY_COURTESY, this.#max), Math.floor(this.#limit * COURTESY));
      this.#ceilingAt = now;
      this.#isFirstClimb = false;
      this.#stay(this.#ceiling, now);
    }
  }

  #keepShortest(ms: number, now: number): void {
    if (now - this.#shortestSince >= USUAL_LIFETIME_MS) {
      this.#shortestBefore = this.#shortestMs;
      this.#shortestMs = ms;
      this.#shortestSince = now;
    } else {
      this.#shortestMs = Math.min(this.#shortestMs, ms);
    }
  }

  #decide(now: number): void {
    if (this.#round.isOutage) {
      this.#isFirstClimb = true;
      this.#stay(this.#limit / 2, now);
    } else if (this.#round.isDone(now, this.#isFirstClimb ? 0 : ROUND_MS) && (this.#isFelt || !this.#feels)) {
      const round = this.#round.result();
      if (this.#trial === undefined) {
        this.#afterUsualRound(round, now);
      } else if (this.#trial.direction === "up") {
        this.#afterMore(round, this.#trial.from, now);
      } else {
        this.#afterFewer(round, this.#trial.from, now);
      }
    }
  }

  /** More at a time: was it worth it? */
  #afterMore(round: Round, from: Round, now: number): void {
    if (round.rate >= from.rate * WORTH_IT && !round.failsMoreThan(from)) {
      this.#holdMs = HOLD_MS;
      this.#usual = round;
      this.#tryMore(round, now);
    } else {
      this.#isFirstClimb = false;
      this.#holdLonger();
      this.#stay(from.limit, now, from);
    }
  }

  /** Fewer at a time: do they do? */
  #afterFewer(round: Round, from: Round, now: number): void {
    if (round.rate >= from.rate * WILL_DO || from.failsMoreThan(round)) {
      this.#holdMs = HOLD_MS;
      this.#tryFewer(round, now);
    } else {
      this.#holdLonger();
      this.#stay(from.limit, now, from);
    }
  }

  #afterUsualRound(round: Round, now: number): void {
    const usual = this.#usual ?? round;
    if (this.#isFirstClimb) {
      this.#tryMore(round, now);
    } else if (round.rate < usual.rate * BUSY || round.failsMoreThan(usual)) {
      this.#becameBusy(now);
    } else if (now < this.#nextTrialAt) {
      this.#usual = usual.smoothedBy(round, SMOOTHING);
      this.#round = new RoundOf(this.#limit, now, this.#round.since);
    } else if (this.#nextDirection === "up") {
      this.#nextDirection = "down";
      this.#tryMore(usual.smoothedBy(round, SMOOTHING), now);
    } else {
      this.#nextDirection = "up";
      this.#tryFewer(usual.smoothedBy(round, SMOOTHING), now);
    }
  }

  /** This round may have begun before that, so that the next one is what fewer at a time are compared with. */
  #becameBusy(now: number): void {
    this.#usual = undefined;
    this.#nextTrialAt = now;
    this.#nextDirection = "down";
    this.#round = new RoundOf(this.#limit, now);
  }

  #tryMore(from: Round, now: number): void {
    if (now - this.#ceilingAt >= COURTESY_MS && this.#ceiling <= this.#limit) {
      this.#ceiling = Math.ceil((this.#limit + 1) / COURTESY);
      this.#ceilingAt = now;
    }
    const more = Math.min(this.#max, this.#ceiling, 2 * this.#limit);
    if (more <= this.#limit) {
      this.#isFirstClimb = false;
      this.#stay(this.#limit, now, from);
    } else {
      this.#set(more, now);
      this.#trial = { from, direction: "up" };
    }
  }

  #tryFewer(from: Round, now: number): void {
    const fewer = Math.floor(this.#limit / 2);
    if (fewer < 1) {
      this.#stay(this.#limit, now, from);
    } else {
      this.#set(fewer, now);
      this.#trial = { from, direction: "down" };
    }
  }

  #holdLonger(): void {
    this.#holdMs = Math.min(LONGEST_HOLD_MS, this.#holdMs * 2);
  }

  /** No trial for a while. */
  #stay(limit: number, now: number, usual?: Round): void {
    this.#trial = undefined;
    this.#usual = usual;
    this.#nextTrialAt = now + this.#holdMs;
    this.#set(limit, now);
  }

  #set(limit: number, now: number): void {
    this.#limit = Math.min(this.#max, Math.max(1, Math.floor(limit)));
    this.#round = new RoundOf(this.#limit, now);
    this.#isFelt = false;
    this.#onChange?.(this.#limit);
  }
}
