import type { LiveLease } from "./control-plane-objects.ts";
import { describeMissing } from "./missing-api-server.ts";

/** How often API servers are told apart although nothing has changed since one was missing, in milliseconds. */
const ANYWAY_MS = 60_000;

/**
 * When it is worth the while to tell the API servers behind one address apart once more: that reads the metrics of each,
 * and an API server that hangs does not renew its identity Lease. Clocks are not compared, only what the Leases say.
 */
export class RecruitPace {
  #failedAt = Number.NEGATIVE_INFINITY;
  #renewals = new Map<string, string | undefined>();
  #found = "";

  /** Tells that one was missing at this moment of the monotonic clock, and how many were found, in words. */
  failed(leases: readonly LiveLease[], now: number, found: string): void {
    this.#failedAt = now;
    this.#found = found;
    this.#renewals = new Map(leases.map(({ name, renewTime }) => [name, renewTime]));
  }

  /** Whether every Lease was renewed since one was missing, or is new, or one of them is gone. */
  isDue(leases: readonly LiveLease[], now: number): boolean {
    const isRenewed = ({ name, renewTime }: LiveLease): boolean =>
      !this.#renewals.has(name) || this.#renewals.get(name) !== renewTime;
    return leases.length < this.#renewals.size || now - this.#failedAt >= ANYWAY_MS || leases.every(isRenewed);
  }

  /** What was missing, in words. */
  describe(leases: readonly LiveLease[]): string {
    return describeMissing(leases, this.#found);
  }
}
