import type { Clock } from "../clock.ts";
import type { ApiClient } from "../old/kube/client.ts";
import { failureKindOf } from "../old/kube/failure.ts";
import type { Retrier } from "../old/retry/retrier.ts";

/** How long a CRD may take to be served, or to be gone. */
export const CRD_TIMEOUT_MS = 60_000;
/** Between two looks at it. */
export const CRD_POLL_MS = 200;

/** What an initializer needs. */
export interface InitContext {
  readonly client: ApiClient;
  readonly retrier: Retrier;
  readonly clock: Clock;
  readonly signal: AbortSignal;
  /** As in {@link DiscoverContext}. */
  readonly discoveryPatienceMs?: number;
}

/**
 * Sends a request about objects of the CRDs until it is served: an API server serves them some time after it took the
 * CRD, and each one in its own time.
 */
export async function whenServed<T>({ clock, retrier, signal }: InitContext, send: () => Promise<T>): Promise<T> {
  const deadline = clock.monotonic() + CRD_TIMEOUT_MS;
  for (;;) {
    try {
      return await retrier.run(send, signal);
    } catch (error) {
      if (failureKindOf(error) !== "unserved" || clock.monotonic() >= deadline) {
        throw error;
      }
    }
    await clock.sleep(CRD_POLL_MS, signal);
  }
}
