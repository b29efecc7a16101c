import { holderOf, type Lease } from "../../api/lease.ts";
import type { Clock } from "../../clock.ts";
import { CONTROLLER_LEASE, SYSTEM_NAMESPACE } from "../../api/migration.ts";
import { isServed } from "../../old/kube/absent.ts";
import type { ApiClient } from "../../old/kube/client.ts";
import { LEASES, MIGRATIONS } from "../../old/kube/resources.ts";
import type { Retrier } from "../../old/retry/retrier.ts";

export interface FindControllerOptions {
  readonly client: ApiClient;
  readonly clock: Clock;
  readonly retrier: Retrier;
}

const POLL_MS = 500;

/**
 * Whether a controller carries out StorageVersionMigrations in this cluster: it has the CRD, and the Lease of the leader
 * is being renewed. That is judged by watching it, never by comparing clocks.
 * @throws {ApiError}, also where the user may not read the Lease; {KsvmError} RetryBudgetExceeded.
 */
export async function isControllerRunning(
  { client, clock, retrier }: FindControllerOptions,
  signal: AbortSignal,
): Promise<boolean> {
  const ref = { namespace: SYSTEM_NAMESPACE, name: CONTROLLER_LEASE };
  const read = () => retrier.run(() => client.find<Lease>(LEASES, ref, { signal }), signal);
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
