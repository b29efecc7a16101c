import type { Arrivals } from "./arrivals.ts";
import type { SeenChange } from "./settle.ts";

/** What besides the encryption {@link lateWritesSince} depends on. */
export interface LateWriters {
  /** Where nothing is watched, an API server may have left right before the look that counts. */
  readonly arrivals: Pick<Arrivals, "changedAt">;
  /** The monotonic clock, in milliseconds. */
  readonly now: number;
  /** Milliseconds for which an API server that has begun to end takes requests. @default 0 */
  readonly shutdownDelayMs?: number;
}

/**
 * What a run without a freeze waits for late writes from: the newer of the look that first showed how all API servers encrypt, and of when one
 * that left took its last request.
 * @param since that look; `undefined` where the encryption is not looked at
 * @param followed from when on late writes of the CRD are to be waited for, on the monotonic clock, in milliseconds. @default that is known otherwise
 */
export function lateWritesSince(
  since: SeenChange | undefined,
  { arrivals, now, shutdownDelayMs = 0 }: LateWriters,
  followed = Number.NEGATIVE_INFINITY,
): SeenChange {
  const endedAt = (arrivals.changedAt ?? since?.seenAt ?? now) + shutdownDelayMs;
  return { at: undefined, seenAt: Math.max(endedAt, followed, since?.seenAt ?? endedAt) };
}
