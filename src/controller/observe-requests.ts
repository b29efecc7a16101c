import { ApiError } from "../old/kube/errors.ts";
import type { RequestObserver } from "../old/kube/transport-options.ts";
import type { Metrics } from "../observability/metrics.ts";

/** An observer for a transport that measures its requests. */
export function observeRequests({ requestDuration }: Pick<Metrics, "requestDuration">): RequestObserver {
  return (method, status, seconds) => requestDuration.observe({ method, code: status }, seconds);
}

/** Counts a wait that `--max-qps` asked for, in milliseconds. */
export function observePacing({ rateLimited }: Pick<Metrics, "rateLimited">): (ms: number) => void {
  return (ms) => rateLimited.inc(ms / 1_000);
}

/** Counts the waits between retries, in milliseconds, as far as the API server asked for them. */
export function observeRetries({
  rateLimited,
}: Pick<Metrics, "rateLimited">): (error: unknown, delayMs: number) => void {
  return (error, delayMs) => {
    if (error instanceof ApiError && (error.status === 429 || error.retryAfterSeconds !== undefined)) {
      rateLimited.inc(delayMs / 1_000);
    }
  };
}
