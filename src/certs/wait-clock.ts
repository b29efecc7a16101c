import type { Clock } from "../clock.ts";

/** What a moment by the API server is noted later, in milliseconds. It comes cut to the second: the next one is late enough for certain. */
const STAMP_MS = 1_000;

/**
 * Counts the waits of a rotation, each of which begins at a moment that the Secret notes, by the clock of the API server that was
 * asked then. Another one may answer now, whose clock says something else: by that the wait would be over at once, or never. So it is
 * counted by the monotonic clock, for as long as this lives.
 */
export class WaitClock {
  readonly #clock: Pick<Clock, "monotonic">;
  /** The moment that the Secret notes, since when it was seen there, and whether this process noted it. */
  #noted: { readonly time: number; readonly at: number; readonly isOwn: boolean } | undefined;

  constructor(clock: Pick<Clock, "monotonic">) {
    this.#clock = clock;
  }

  /** Has a wait begin. @returns what to note in the Secret */
  begin(serverNow: number): number {
    const time = serverNow + STAMP_MS;
    this.#noted = { time, at: this.#clock.monotonic(), isOwn: true };
    return time;
  }

  /**
   * The time by the clock that noted a moment, as far as that is known.
   *
   * @param time what the Secret notes; `undefined` where that is nothing
   * @param isServerSure whether the API server's clock can be believed where another process began the wait
   */
  now(time: number | undefined, serverNow: number, isServerSure: boolean): number {
    if (time === undefined) {
      return serverNow;
    }
    const now = this.#clock.monotonic();
    if (this.#noted?.time !== time) {
      this.#noted = { time, at: now, isOwn: false };
    }
    const { at, isOwn } = this.#noted;
    // What another process noted was noted before it was seen here, at the latest.
    const since = time - STAMP_MS + now - at;
    return isOwn || !isServerSure ? since : Math.max(serverNow, since);
  }
}
