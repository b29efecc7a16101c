import { setTimeout as delay } from "node:timers/promises";
import { ApiError } from "../../src/old/kube/errors.ts";
import { isReinitializing } from "../../src/old/kube/failure.ts";
import type { ApiRequest, ApiResponse } from "../../src/old/kube/api-request.ts";
import { Transport } from "../../src/old/kube/transport.ts";

const PATIENCE_MS = 10_000;
const PAUSE_MS = 200;

/** The handler of a CRD that is being replaced says that of itself. */
const IS_REPLACED = /apiserver is shutting down/;

function isBeingReplaced(error: unknown): boolean {
  return error instanceof ApiError && error.status === 503 && IS_REPLACED.test(error.message);
}

/**
 * For what a test itself asks: for a moment after a CRD was changed an API server answers 429 or 503 for its objects, on a
 * busy machine for some seconds. A request that is refused so has done nothing.
 */
export class PatientTransport extends Transport {
  override async request<T>(request: ApiRequest): Promise<ApiResponse<T>> {
    const startedAt = performance.now();
    for (;;) {
      try {
        return await super.request<T>(request);
      } catch (error) {
        const mayPass = isReinitializing(error) || isBeingReplaced(error);
        if (!mayPass || performance.now() - startedAt > PATIENCE_MS) throw error;
        await delay(PAUSE_MS, undefined, { signal: request.signal });
      }
    }
  }
}
