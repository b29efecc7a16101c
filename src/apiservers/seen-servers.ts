import { type Clock, wallOffsetOf } from "../clock.ts";
import { SLOW_ANSWER_MS } from "./ask-all.ts";
import { Departures } from "./departures.ts";
import { LeaseSightings } from "./lease-sightings.ts";
import { ServerArrivals } from "./server-arrivals.ts";
import { SettledChanges } from "./settled-changes.ts";

/**
 * What a process saw of the API servers of its cluster. There is one for a whole process, made where it starts, since a run
 * that begins after machines were suspended cannot see that by itself: the identity Leases are renewed again within seconds,
 * and by the clocks the storage change is long past.
 */
export class SeenServers {
  readonly sightings = new LeaseSightings();
  readonly departures = new Departures();
  readonly arrivals: ServerArrivals;
  readonly settled = new SettledChanges();
  readonly #clock: Clock;
  /** When one was last silent or missing, or may have stood still, on the monotonic clock. */
  #silentAt = Number.NEGATIVE_INFINITY;
  /** What `wallOffsetOf()` said when it was last looked at, whichever run did: it jumps where this machine was suspended. */
  #wallOffset: number;

  constructor(clock: Clock) {
    this.#clock = clock;
    this.arrivals = new ServerArrivals(clock, this.departures);
    this.#wallOffset = wallOffsetOf(clock);
  }

  /** Notes that one is silent or missing now. */
  silent(): void {
    this.#silentAt = this.#clock.monotonic();
  }

  /**
   * Machines that are suspended together make a change look old, and a write that was under way on them has as much left to
   * go as before: its timeout runs on the monotonic clock. That counts as a silence, as an overdue identity Lease does. A
   * suspension between two runs counts from when the later one notices it.
   */
  noticeSuspension(): void {
    const offset = wallOffsetOf(this.#clock);
    if (Math.abs(offset - this.#wallOffset) > SLOW_ANSWER_MS) {
      this.silent();
    }
    this.#wallOffset = offset;
  }

  /**
   * Whether one was silent or missing within the last `ms` milliseconds, or left: it may have been silent, or behind, when that
   * was not looked at.
   * @param shutdownDelayMs for how long one that leaves takes requests, in milliseconds
   */
  wereSilentWithin(ms: number, shutdownDelayMs = 0): boolean {
    const now = this.#clock.monotonic();
    return now - this.#silentAt <= ms || this.departures.lastWithin(ms + shutdownDelayMs, now) !== undefined;
  }
}
