/** Between two restarts of an exec plugin, in milliseconds: at first, and at most. */
const MIN_INTERVAL_MS = 10_000;
const MAX_INTERVAL_MS = 60_000;

/**
 * How often an exec plugin is started again because its credentials expired or were refused. The first restart does not
 * wait, as a token may have been revoked. While API servers refuse whatever the plugin prints, as where their authentication
 * webhook is down, the interval doubles with each restart: a plugin may ask a server of its own, or the user. All times are
 * of one monotonic clock, in milliseconds.
 */
export class RestartPace {
  #last = Number.NEGATIVE_INFINITY;
  #intervalMs = MIN_INTERVAL_MS;

  /** Whether the plugin may be started again now. */
  isDue(now: number): boolean {
    return now - this.#last >= this.#intervalMs;
  }

  /** Tells that it is. @param wasRefused whether an API server refused what it printed the last time */
  restarted(now: number, wasRefused: boolean): void {
    const isCalm = now - this.#last > 2 * this.#intervalMs;
    this.#intervalMs = wasRefused && !isCalm ? Math.min(MAX_INTERVAL_MS, 2 * this.#intervalMs) : MIN_INTERVAL_MS;
    this.#last = now;
  }
}
