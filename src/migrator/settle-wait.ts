import type { CustomResourceDefinition } from "../api/crd.ts";
import type { ApiClient } from "../kube/client.ts";
import { CRDS, objectPath } from "../kube/resources.ts";
import type { ApiResponse } from "../kube/transport.ts";
import type { RunContext } from "./run-context.ts";
import { lastVersionsChangeOf, settleRemainingMs } from "./settle.ts";

/** What besides the CRD itself settling counts from. */
export interface SettleOptions {
  /** Missing for a built-in resource, whose storage version changes with the API servers alone. */
  readonly crdName?: string;
  readonly apiServers: readonly ApiClient[];
  /** When the newest API server joined, in milliseconds since the Unix epoch. */
  readonly newestJoin?: number | undefined;
  /** Whether an API server was behind only just now. */
  readonly lagged: boolean;
}

/**
 * Waits until a write of an old version that was under way when the storage version changed must have landed or have
 * been ended by its API server. Needs a proven freeze: the storage version cannot change meanwhile.
 */
export async function settle(context: RunContext, options: SettleOptions): Promise<void> {
  const { clock, emit, signal } = context;
  const settleMs = context.options.settleMs;
  const { newestJoin } = options;
  const changes: number[] = newestJoin === undefined ? [] : [newestJoin];
  for (let first = true; ; first = false) {
    const { crds, serverNow } = await readAll(context, options);
    if (first && options.lagged) {
      changes.push(serverNow);
    }
    for (const crd of crds) {
      changes.push(lastVersionsChangeOf(crd) ?? (first ? serverNow : 0));
    }
    const remainingMs = settleRemainingMs({ settleMs, serverNow, changes });
    if (remainingMs === 0) {
      return;
    }
    emit({ type: "settling", remainingMs });
    await clock.sleep(remainingMs, signal);
  }
}

/**
 * The CRD and the clock of every API server. The slowest of their clocks counts: a change was stamped by one of them,
 * so against the slowest it is never taken for older than it is.
 */
async function readAll(
  { clock, retrier, signal }: RunContext,
  { apiServers, crdName }: SettleOptions,
): Promise<{ readonly crds: readonly CustomResourceDefinition[]; readonly serverNow: number }> {
  const path = crdName === undefined ? "/version" : objectPath(CRDS, { name: crdName });
  const read = ({ transport }: ApiClient): Promise<ApiResponse<CustomResourceDefinition>> =>
    transport.request({ method: "GET", path, signal });
  const answers = await Promise.all(apiServers.map((client) => retrier.run(() => read(client), signal)));
  return {
    crds: crdName === undefined ? [] : answers.map(({ body }) => body),
    serverNow: Math.min(...answers.map(({ serverTime }) => serverTime ?? clock.now())),
  };
}
