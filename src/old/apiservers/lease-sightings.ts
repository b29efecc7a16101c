import type { IdentityLease, LiveLease } from "./control-plane-objects.ts";

/** One look at the identity Leases, with times of the monotonic clock, in milliseconds. */
export interface LeaseLook {
  readonly leases: readonly IdentityLease[];
  readonly askedAt: number;
  readonly answeredAt: number;
}

interface Sighting {
  readonly renewTime: string | undefined;
  /** Whether its time was over already when it was first seen: the clock that wrote it is far behind. */
  readonly wasOver: boolean;
  /** When an answer first showed this time of renewal. */
  readonly seenAt: number;
  /** When the last look that showed it was asked for: a later renewal came after that. */
  readonly shownAt: number;
  /** When it was renewed at the latest; `undefined` where no look showed another renewal before. */
  readonly renewedBy: number | undefined;
}

/**
 * An API server that lives renews its identity Lease every 10 s, and up to half a second later. So one that stands still
 * for this long was not renewed where it should have been three times.
 *
 * https://github.com/kubernetes/kubernetes/blob/v1.36.0/pkg/controlplane/apiserver/server.go
 */
const STANDS_STILL_MS = 30_000;

/**
 * Tells which identity Leases may live. No clock says so by itself: that of the API server that wrote the Lease may be hours
 * behind, that of the one that answers may be ahead, and a proxy may send any `Date`. So a Lease has expired only where all
 * of this is so:
 *
 * - its time is over by the `Date` of the answer and by the clock of this machine
 * - it was not renewed between two looks that lie {@link STANDS_STILL_MS} apart
 * - where two looks showed different renewals, the Lease's duration has passed on the monotonic clock since the last renewal
 *   can have come: after the look that first showed the earlier one, by as much as their stamps differ, and not after the
 *   look that first showed the last one
 *
 * The last rule needs no clock that is right, only one that keeps its rate: what it is behind or ahead is the same in both
 * stamps. Where the clock was set ahead between them, where no such clock can have written them, or where the clock was so far
 * behind that the earlier stamp looked expired at once, the later look counts, which waits longest. A clock that seemed right
 * and was set back by less than the time between the looks cannot be told from an API server that ended earlier: the duration
 * ends too early by as much. That leaves out no API server that lives, since a watch of {@link STANDS_STILL_MS} sees it renew
 * its Lease, but one that hangs is waited for less long. Only two stamps in a row are compared, so that a rate which is
 * slightly off does not add up.
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
      const { renewedBy, seenAt } = sighting;
      const renewedMs = renewedBy === undefined ? undefined : Math.max(0, askedAt - renewedBy);
      if (!lease.isOver || (renewedMs !== undefined && renewedMs < lease.durationMs)) {
        return [renewedMs === undefined ? lease : { ...lease, seenRenewedMsAgo: renewedMs }];
      }
      const stoodMs = Math.max(0, askedAt - seenAt);
      return stoodMs < STANDS_STILL_MS ? [{ ...lease, watchMs: STANDS_STILL_MS - stoodMs }] : [];
    });
  }

  #sighted(lease: IdentityLease, { askedAt, answeredAt }: Pick<LeaseLook, "askedAt" | "answeredAt">): Sighting {
    const { isOver, renewTime } = lease;
    const before = this.#seen.get(keyOf(lease));
    if (before !== undefined && before.renewTime === renewTime) {
      return { ...before, shownAt: askedAt };
    }
    const renewedBy = before && latestRenewal(before, renewTime, answeredAt);
    return { renewTime, wasOver: isOver, seenAt: answeredAt, shownAt: askedAt, renewedBy };
  }
}

/** When at the latest a renewal came that an answer showed at `seenAt`, and none before. */
function latestRenewal(before: Sighting, renewTime: string | undefined, seenAt: number): number {
  if (before.wasOver) {
    return seenAt;
  }
  const byStamps = before.seenAt + Date.parse(renewTime ?? "") - Date.parse(before.renewTime ?? "");
  // It came after the last look that did not show it: else the clock was set back. NaN is no time either.
  return byStamps >= before.shownAt ? Math.min(byStamps, seenAt) : seenAt;
}

function keyOf({ name, uid }: LiveLease): string {
  return `${name}@${uid}`;
}
