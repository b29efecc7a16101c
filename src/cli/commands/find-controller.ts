import { holderOf, type Lease } from "../../api/lease.ts";
import type { Clock } from "../../clock.ts";
import { CONTROLLER_LEASE, SYSTEM_NAMESPACE } from "../../api/migration.ts";
import { isServed } from "../../kube/absent.ts";
import type { ApiClient } from "../../kube/client.ts";
import { ApiError } from "../../kube/errors.ts";
import { LEASES, MIGRATIONS } from "../../kube/resources.ts";
import type { Retrier } from "../../retry/retrier.ts";

export interface FindControllerOptions {
  readonly client: ApiClient;
  readonly clock: Clock;
  readonly retrier: Retrier;
}

const POLL_MS = 500;

/**
 * Whether a controller carries out StorageVersionMigrations in this cluster: it has the CRD, and the Lease of the leader
 * is being renewed. That is judged by watching it, never by comparing clocks. A user who may not read the Lease is told
 * that there is none.
 * @throws {ApiError}; {KsvmError} RetryBudgetExceeded.
 */
export async function isControllerRunning(
  { client, clock, retrier }: FindControllerOptions,
  signal: AbortSignal,
): Promise<boolean> {
  const read = (): Promise<Lease | undefined> => retrier.run(() => readLease(client, signal), signal);
  const first = await read();
  if (
    holderOf(first) === "" ||
    !(await retrier.run(() => isServed(client.transport, MIGRATIONS, { signal }), signal))
  ) {
    return false;
  }
  const deadline = clock.monotonic() + (first?.spec?.leaseDurationSeconds ?? 15) * 1_000;
  const before = JSON.stringify(first?.spec);
  while (clock.monotonic() < deadline) {
    await clock.sleep(POLL_MS, signal);
    const now = await read();
    if (JSON.stringify(now?.spec) !== before) {
      return holderOf(now) !== "";
    }
  }
  return false;
}

async function readLease(client: ApiClient, signal: AbortSignal): Promise<Lease | undefined> {
  const ref = { namespace: SYSTEM_NAMESPACE, name: CONTROLLER_LEASE };
  try {
    return await client.find<Lease>(LEASES, ref, { signal });
  } catch (error) {
    if (error instanceof ApiError && error.status === 403) {
      return undefined;
    }
    throw error;
  }
}
