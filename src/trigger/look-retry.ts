import { isConflict } from "../old/kube/client.ts";

/** After a first conflict, in milliseconds: another client wrote in between. */
export const CONFLICT_RETRY_MS = 100;
const FIRST_RETRY_MS = 1_000;
const LAST_RETRY_MS = 60_000;

/**
 * Milliseconds until the next look at a resource, after one that failed.
 * @param failures how many have failed, one after the other
 */
export function lookRetryMs(error: unknown, failures: number): number {
  return isConflict(error) && failures === 1
    ? CONFLICT_RETRY_MS
    : Math.min(LAST_RETRY_MS, FIRST_RETRY_MS * 2 ** (failures - 1));
}
