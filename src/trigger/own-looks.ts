import { HEARTBEAT_LIMIT_MS } from "../api/migration.ts";
import type { Clock } from "../clock.ts";
import { type Moment, momentOf, msSince } from "../old/lease/lease-write.ts";
import type { StateFacts } from "./next-status.ts";

/** By how much a clock may seem to go wrong from one look to the next, in milliseconds: an answer takes a while. */
const TOLERANCE_MS = 60_000;
/** How many clocks of API servers are remembered. */
const MAX_CLOCKS = 10;

interface Look {
  readonly heartbeat: number;
  readonly at: Moment;
  /** Those that were known then: what a later look at another resource learned after a pause says nothing of this one. */
  readonly clocks: readonly number[];
}

/**
 * When this process looked at each resource last, by its own clock. Heartbeats are times of API servers. Where the clocks of two of these are ten
 * minutes apart, a heartbeat that the one wrote is always too old for the other.
 *
 * Its own clock alone proves nothing: it stands still with a virtual machine that is paused. So the time of an API server counts unless that clock
 * has been seen before, as far ahead or behind as now.
 */
export class OwnLooks {
  readonly #clock: Clock;
  readonly #last = new Map<string, Look>();
  /** By how much clocks of API servers are ahead of the own monotonic one, the latest last. */
  #clocks: readonly number[] = [];

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  /**
   * Notes that a look is over.
   * @param heartbeat what the StorageState says since then, in milliseconds since the Unix epoch
   * @param serverTime what an API server showed, in milliseconds since the Unix epoch
   */
  looked(name: string, heartbeat: number, serverTime: number): void {
    if (!this.#isAmong(this.#clocks, serverTime)) {
      this.#clocks = [...this.#clocks, this.#aheadBy(serverTime)].slice(-MAX_CLOCKS);
    }
    this.#last.set(name, { heartbeat, at: momentOf(this.#clock), clocks: this.#clocks });
  }

  /**
   * Whether a look of this process left the StorageState as it is, and was not too long ago: nothing was missed since, whatever the clocks of API servers
   * show. After another client wrote the heartbeat, or etcd was restored from a backup, it is the heartbeat that counts.
   * @param serverTime as {@link looked} has it
   */
  isRecent(name: string, state: StateFacts | undefined, serverTime: number): boolean {
    const last = this.#last.get(name);
    const isLast = last !== undefined && last.heartbeat === state?.heartbeat;
    return isLast && msSince(last.at, this.#clock) <= HEARTBEAT_LIMIT_MS && this.#isAmong(last.clocks, serverTime);
  }

  /** Forgets what is no more. */
  keepOnly(isThere: (name: string) => boolean): void {
    [...this.#last.keys()].filter((name) => !isThere(name)).forEach((name) => this.#last.delete(name));
  }

  #aheadBy(serverTime: number): number {
    return serverTime - this.#clock.monotonic();
  }

  #isAmong(clocks: readonly number[], serverTime: number): boolean {
    const ahead = this.#aheadBy(serverTime);
    return clocks.some((known) => Math.abs(known - ahead) <= TOLERANCE_MS);
  }
}
