import type { IdentityLease, LiveLease } from "./control-plane-objects.ts";

/** One look at the identity Leases, with times of the monotonic clock, in milliseconds. */
export interface LeaseLook {
  readonly leases: readonly IdentityLease[];
  readonly askedAt: number;
  readonly answeredAt: number;
}

interface Sighting {
  readonly renewTime: string | undefined;
  /** When an answer first showed this time of renewal. */
  readonly seenAt: number;
  /** When the last look that showed it was asked for: a later renewal came after that. */
  readonly shownAt: number;
  /** Whether the renewal came shortly before `seenAt`, so that the Lease's duration counts from there. */
  readonly hasMoved: boolean;
  /** Whether a renewal showed that the clock of its API server is behind: its stamps prove nothing. */
  readonly isBehind: boolean;
}

/**
 * An API server that lives renews its identity Lease every 10 s, and up to half a second later. So one that stands still
 * for this long was not renewed where it should have been three times.
 *
 * https://github.com/kubernetes/kubernetes/blob/v1.36.0/pkg/controlplane/apiserver/server.go
 */
const STANDS_STILL_MS = 30_000;
/** A renewal between two looks that lie further apart may have come long before the second one, in milliseconds. */
const CLOSE_MS = 60_000;

/**
 * Tells which identity Leases may live. No clock says so by itself: that of the API server that wrote the Lease may be hours
 * behind, that of the one that answers may be ahead, and a proxy may send any `Date`. So a Lease has expired only where all
 * of this is so:
 *
 * - its time is over by the `Date` of the answer and by the clock of this machine
 * - it was not renewed between two looks that lie {@link STANDS_STILL_MS} apart
 * - where two looks have shown when it was renewed, or that the clock that it is stamped by is behind, the Lease's duration
 *   has passed since the look that showed its last renewal, on the monotonic clock
 *
 * One for a whole process spares each run the wait between the two looks.
 */
export class LeaseSightings {
  #seen: ReadonlyMap<string, Sighting> = new Map();

  /** The Leases of this look that may live, each with how long it must still be watched where its time is over. */
  standing({ answeredAt, askedAt, leases }: LeaseLook): readonly LiveLease[] {
    const seen = leases.map((lease) => [lease, this.#sighted(lease, { askedAt, answeredAt })] as const);
    this.#seen = new Map(seen.map(([lease, sighting]) => [keyOf(lease), sighting]));
    return seen.flatMap(([lease, sighting]) => {
      const stoodMs = askedAt - sighting.seenAt;
      if (!lease.isOver || (sighting.hasMoved && stoodMs < lease.durationMs)) {
        return [sighting.hasMoved ? { ...lease, seenRenewedMsAgo: Math.max(0, stoodMs) } : lease];
      }
      return stoodMs < STANDS_STILL_MS ? [{ ...lease, watchMs: STANDS_STILL_MS - Math.max(0, stoodMs) }] : [];
    });
  }

  #sighted(lease: IdentityLease, { askedAt, answeredAt }: Pick<LeaseLook, "askedAt" | "answeredAt">): Sighting {
    const { durationMs, isOver, renewTime } = lease;
    const before = this.#seen.get(keyOf(lease));
    if (before === undefined) {
      return { renewTime, seenAt: answeredAt, shownAt: askedAt, hasMoved: false, isBehind: false };
    }
    if (before.renewTime === renewTime) {
      return { ...before, shownAt: askedAt };
    }
    const agoMs = answeredAt - before.shownAt;
    // It was renewed no longer ago than that, and its stamp says that its duration has passed since.
    const isBehind = before.isBehind || (isOver && agoMs < durationMs);
    return { renewTime, seenAt: answeredAt, shownAt: askedAt, hasMoved: agoMs <= CLOSE_MS || isBehind, isBehind };
  }
}

function keyOf({ name, uid }: LiveLease): string {
  return `${name}@${uid}`;
}
