import { FirstWrite } from "./first-write.ts";

/** What keeps a run from getting further: a webhook of another owner, which has a budget of its own, or anything else. */
export type IdleCause = "webhook" | "other";

/** How far a run is. */
export interface Advance {
  /** Objects that the attempt has looked at. */
  readonly done: number;
  /** The resourceVersion that the last of them was listed with, if the attempt stored it in another encoding. */
  readonly written?: string | undefined;
  /** The watermark of the attempt. */
  readonly watermark: string;
}

const FIRST_PAUSE_MS = 2_000;
const MAX_PAUSE_MS = 60_000;

/**
 * The time that failures cost a whole run, over all its attempts, since the run last got further than ever before. An
 * attempt that begins again at step 1 repeats what an earlier one did: that alone starts no budget over. All times are of
 * one monotonic clock, in milliseconds.
 */
export class RunBudget {
  readonly #idle: Readonly<Record<IdleCause, IdleTime>> = { webhook: new IdleTime(), other: new IdleTime() };
  readonly #frozen = new IdleTime();
  #furthest = 0;
  #brokenOff = 0;
  readonly #firstWrite = new FirstWrite();

  /**
   * Tells of an object that is done. Progress is an object beyond the furthest one of all attempts, and the first write of
   * an object, see {@link FirstWrite}. A write by itself is no progress: where a mutating webhook changes an object with every
   * update, each attempt with a watermark of its own writes it again, without end.
   */
  advanced({ done, written, watermark }: Advance, now: number): void {
    if (this.#firstWrite.isFirst(written, watermark) !== true && done <= this.#furthest) {
      return;
    }
    this.#furthest = Math.max(this.#furthest, done);
    this.#brokenOff = 0;
    for (const time of [this.#idle.webhook, this.#idle.other, this.#frozen]) {
      time.startOver(now);
    }
  }

  /** Tells that the run did not get further from `since` to `now`. Times that overlap count once. */
  idled(cause: IdleCause, since: number, now: number): void {
    this.#idle[cause].add(since, now);
  }

  /** The same, with a freeze that was held all the time. */
  heldFreeze(since: number, now: number): void {
    this.#frozen.add(since, now);
  }

  /** Milliseconds without progress by this cause. */
  idleMs(cause: IdleCause): number {
    return this.#idle[cause].ms;
  }

  /** Milliseconds without progress that a freeze was held. */
  get frozenMs(): number {
    return this.#frozen.ms;
  }

  /**
   * Tells that an attempt was broken off to wait.
   * @returns milliseconds to wait at least: more with each attempt that was broken off without progress in between
   */
  brokenOff(): number {
    this.#brokenOff++;
    return this.#brokenOff === 1 ? 0 : Math.min(MAX_PAUSE_MS, FIRST_PAUSE_MS * 2 ** Math.min(this.#brokenOff - 2, 10));
  }
}

/** Intervals that are kept apart; of more, what began before the oldest of them is not looked for any more. */
const MAX_INTERVALS = 1_000;

interface Interval {
  readonly from: number;
  readonly to: number;
}

/**
 * The length of intervals of time together; where they overlap it counts once. Each ends now, and may have begun before those that were added
 * earlier: of several objects that wait for their next try, the one that has failed for longest may be the last to be tried again.
 */
class IdleTime {
  #ms = 0;
  #notBefore = Number.NEGATIVE_INFINITY;
  /** In their order, and none of them touch. */
  #intervals: Interval[] = [];

  get ms(): number {
    return this.#ms;
  }

  add(since: number, now: number): void {
    let from = Math.max(since, this.#notBefore);
    if (now <= from) {
      return;
    }
    for (let last = this.#intervals.at(-1); last !== undefined && last.to >= from; last = this.#intervals.at(-1)) {
      from = Math.min(from, last.from);
      this.#ms -= last.to - last.from;
      this.#intervals.pop();
    }
    this.#ms += now - from;
    this.#intervals.push({ from, to: now });
    if (this.#intervals.length > MAX_INTERVALS) {
      this.#notBefore = this.#intervals.shift()?.to ?? now;
    }
  }

  startOver(now: number): void {
    this.#ms = 0;
    this.#notBefore = Math.max(this.#notBefore, this.#intervals.at(-1)?.to ?? now, now);
    this.#intervals = [];
  }
}
