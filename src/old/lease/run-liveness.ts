import type { Clock } from "../../clock.ts";
import { listNamed } from "../kube/list-named.ts";
import type { ApiClient } from "../kube/client.ts";
import { LEASES } from "../kube/resources.ts";
import type { Lease } from "../../api/lease.ts";
import { observedMsOf } from "./lease-acquire.ts";
import type { Retrier } from "../retry/retrier.ts";

/** What {@link isRunDead} needs. */
export interface RunLivenessOptions {
  readonly client: ApiClient;
  readonly clock: Clock;
  readonly retrier: Retrier;
  readonly signal: AbortSignal;
}

const OBSERVE_POLL_MS = 2_000;

/**
 * Whether no run lives on a Lease: it is gone, or not renewed, while it is watched for as long as it lasts. It is
 * only read: for the Lease of a run whose namespace grants no more than that. A run that stood still and wakes up after
 * this finds its freeze lifted, and ends.
 * @throws {ApiError} Forbidden where the Lease may not be read; {KsvmError} RetryBudgetExceeded.
 */
export async function isRunDead(
  { client, clock, retrier, signal }: RunLivenessOptions,
  ref: { readonly namespace: string; readonly name: string },
): Promise<boolean> {
  const read = async (): Promise<Lease | undefined> =>
    (await retrier.run(() => listNamed<Lease & { kind?: string }>(client.transport, LEASES, ref, { signal }), signal))
      .object;
  const first = await read();
  const deadline = clock.monotonic() + observedMsOf(first);
  for (;;) {
    await clock.sleep(OBSERVE_POLL_MS, signal);
    const isOver = clock.monotonic() >= deadline;
    const now = await read();
    if (stateOf(now) !== stateOf(first)) {
      return false;
    }
    if (isOver) {
      return true;
    }
  }
}

/** Every renewal changes the resourceVersion. */
function stateOf(lease: Lease | undefined): string {
  return lease === undefined ? "gone" : `${lease.metadata.uid}/${lease.metadata.resourceVersion}`;
}
