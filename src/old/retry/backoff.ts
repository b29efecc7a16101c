import { ApiError } from "../kube/errors.ts";
import { failureKindOf } from "../kube/failure.ts";

/** The longest delay that backoff comes to by itself, in milliseconds. `Retry-After` may ask for more. */
export const MAX_BACKOFF_MS = 30_000;

const BASE_BACKOFF_MS = 100;
const MAX_RETRY_AFTER_MS = 120_000;

/**
 * Milliseconds for which an overloaded API server asks to be left alone by an error answer, up to two minutes; 0 where it does not. What
 * an admission webhook says of that does not count.
 */
export function askedPauseMs(error: unknown): number {
  const isAnswer = error instanceof ApiError && failureKindOf(error) === "transient";
  return isAnswer ? Math.min(MAX_RETRY_AFTER_MS, (error.retryAfter ?? 0) * 1_000) : 0;
}

/**
 * Exponential backoff with full jitter, in milliseconds: between 0 and 100 ms doubled with each attempt, at most 30 s.
 * A `Retry-After` is a floor, so that a server that asks for patience gets it (up to two minutes).
 *
 * @param attempt 0 after the first failure
 * @param random a number from 0 up to but not including 1
 */
export function backoffMs(attempt: number, random: number, retryAfterSeconds = 0): number {
  const ceiling = Math.min(MAX_BACKOFF_MS, BASE_BACKOFF_MS * 2 ** Math.min(attempt, 20));
  const floor = Math.min(MAX_RETRY_AFTER_MS, retryAfterSeconds * 1_000);
  return floor + random * ceiling;
}
