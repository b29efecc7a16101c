import type { RunLeaseOptions } from "./lease-acquire.ts";
import { RunLease } from "./run-lease.ts";

/** For giving the Lease up, in milliseconds: it expires by itself. */
const RELEASE_MS = 10_000;

/** What {@link holdRunLease} needs. */
export interface HoldOptions extends RunLeaseOptions {
  /** Of the process: each hold has one of its own, so that none takes the Lease of a dead run that another one left for its own. */
  readonly identity: string;
  /** Returns a number from 0 up to but not including 1. @default Math.random */
  readonly random?: () => number;
  /** Told why the Lease could not be given up. @default nobody */
  readonly onLeft?: (lease: RunLease, error: unknown) => void;
}

/**
 * Works on a resource while no run does, by the Lease of its runs. A checkpoint stays. Where a run that died held the Lease, it is left as
 * that of a dead run: the run that follows, perhaps of another process, has to wait for late writes as one that takes it over itself.
 * @throws as {@link RunLease.acquire}, and whatever `work` throws.
 */
export async function holdRunLease(options: HoldOptions, work: (lease: RunLease) => Promise<void>): Promise<void> {
  const { random = Math.random } = options;
  const identity = `${options.identity}/${random().toString(36).slice(2, 10)}`;
  let isOfDead = false;
  const onTakeOver = (holder: string): void => {
    isOfDead = true;
    options.onTakeOver?.(holder);
  };
  const lease = await RunLease.acquire({ ...options, identity, onTakeOver });
  const release = { keepCheckpoint: lease.checkpoint !== undefined, keepHolder: isOfDead };
  try {
    await work(lease);
  } finally {
    await lease
      .release(release, options.clock.timeout(RELEASE_MS))
      .catch((error: unknown) => options.onLeft?.(lease, error));
  }
}
