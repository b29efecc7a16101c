import { HEARTBEAT_LIMIT_MS } from "../api/migration.ts";
import type { Clock } from "../clock.ts";
import { type Moment, momentOf, msSince } from "../lease/lease-write.ts";
import type { StateFacts } from "./next-status.ts";

interface Look {
  readonly heartbeat: number;
  readonly at: Moment;
}

/**
 * When this process looked at each resource last, by its own clock. Heartbeats are times of API servers. Where the clocks of two of these are ten
 * minutes apart, a heartbeat that the one wrote is always too old for the other.
 */
export class OwnLooks {
  readonly #clock: Clock;
  readonly #last = new Map<string, Look>();

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  /** Notes that a look is over. @param heartbeat what the StorageState says since then, in milliseconds since the Unix epoch */
  looked(name: string, heartbeat: number): void {
    this.#last.set(name, { heartbeat, at: momentOf(this.#clock) });
  }

  /**
   * Whether a look of this process left the StorageState as it is, and was not too long ago: nothing was missed since, whatever the clocks of API servers
   * show. After another client wrote the heartbeat, or etcd was restored from a backup, it is the heartbeat that counts.
   */
  isRecent(name: string, state: StateFacts | undefined): boolean {
    const last = this.#last.get(name);
    return (
      last !== undefined && last.heartbeat === state?.heartbeat && msSince(last.at, this.#clock) <= HEARTBEAT_LIMIT_MS
    );
  }

  /** Forgets what is no more. */
  keepOnly(isThere: (name: string) => boolean): void {
    [...this.#last.keys()].filter((name) => !isThere(name)).forEach((name) => this.#last.delete(name));
  }
}
