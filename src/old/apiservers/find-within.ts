import type { Clock } from "../../clock.ts";
import { KsvmError } from "../../errors.ts";
import type { ApiServers } from "./api-servers.ts";

/** How {@link findWithin} looks for the API servers. */
export interface FindWithinOptions {
  readonly findApiServers: (signal: AbortSignal) => Promise<ApiServers>;
  readonly clock: Pick<Clock, "timeout">;
  /** Milliseconds that it may take. */
  readonly timeoutMs: number;
  readonly signal: AbortSignal;
}

/**
 * Finds the API servers where the caller looks again later instead of waiting for one that is missing.
 * @throws {KsvmError} NotConverged where that takes longer than `timeoutMs`; what `findApiServers` throws.
 */
export async function findWithin(options: FindWithinOptions): Promise<ApiServers> {
  const { findApiServers, clock, timeoutMs, signal } = options;
  const limit = clock.timeout(timeoutMs);
  try {
    return await findApiServers(AbortSignal.any([signal, limit]));
  } catch (error) {
    signal.throwIfAborted();
    if (!limit.aborted) {
      throw error;
    }
    throw new KsvmError("NotConverged", `Cannot find every API server within ${timeoutMs / 1_000} s`, { cause: error });
  }
}
