import { Waker } from "../waker.ts";
import { ensureCertificates, type EnsureOptions, type EnsureResult, WaitClock } from "./ensure.ts";

/** The certificates are looked at this often, in milliseconds. */
const KEEP_INTERVAL_MS = 3_600_000;
/** A rotation under way is not looked at more often than this, in milliseconds. */
const MIN_INTERVAL_MS = 5_000;

/**
 * Makes the first certificates, and keeps them valid, at once and every hour, until the signal is aborted: the leader's
 * part, beside the CronJob, so that a cluster whose CronJobs are suspended keeps going. A rotation that has to wait
 * goes on when the wait is over. What fails is logged and tried again. Where a replica sees that the Secret has lost
 * its certificates, they are looked at at once.
 */
export async function keepCertificates(
  options: Omit<EnsureOptions, "rotateNow" | "wait" | "waits"> & {
    /** Milliseconds. @default {@link KEEP_INTERVAL_MS} */
    readonly intervalMs?: number;
    /** Woken where the Secret has lost its certificates, or is older than it was. @default never */
    readonly lost?: Waker;
  },
): Promise<void> {
  const { clock, logger, signal, intervalMs = KEEP_INTERVAL_MS, lost = new Waker() } = options;
  const waits = new WaitClock(clock);
  while (!signal.aborted) {
    lost.begin();
    const result = await ensureCertificates({ ...options, waits }).catch((error: unknown) => {
      if (!signal.aborted) {
        logger.error({ err: error }, "Cannot keep the certificates current; trying again");
      }
      return undefined;
    });
    // One that is lost again and again is not looked at all the time.
    await clock.sleep(MIN_INTERVAL_MS, signal).catch(() => undefined);
    const pauseMs = pauseAfter(result, intervalMs) - MIN_INTERVAL_MS;
    await lost.wait(Math.max(0, pauseMs), clock, signal).catch(() => undefined);
  }
}

/** After a failure a minute; during a rotation until it can go on. */
function pauseAfter(result: EnsureResult | undefined, intervalMs: number): number {
  if (result === undefined) {
    return Math.min(intervalMs, 60_000);
  }
  const until = result.state === "waiting" ? result.until : result.nextRenewal;
  return Math.min(intervalMs, Math.max(until - result.now, MIN_INTERVAL_MS));
}
