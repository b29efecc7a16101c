import type { LeaseSpec } from "../../api/lease.ts";

/** What one renewal by a leader says. */
export interface LeaderRenewal {
  readonly identity: string;
  readonly leaseDurationMs: number;
  readonly renewTime: string;
}

/** The spec of the Lease of a leader after a renewal, or after it was taken over. */
export function leaderSpecAfter(
  before: LeaseSpec | undefined,
  { identity, leaseDurationMs, renewTime }: LeaderRenewal,
): LeaseSpec {
  const leaseDurationSeconds = Math.ceil(leaseDurationMs / 1_000);
  const common = { holderIdentity: identity, leaseDurationSeconds, renewTime };
  const { holderIdentity, acquireTime = renewTime, leaseTransitions = 0 } = before ?? { holderIdentity: identity };
  return holderIdentity === identity
    ? { ...common, acquireTime, leaseTransitions }
    : { ...common, acquireTime: renewTime, leaseTransitions: leaseTransitions + 1 };
}
