import { leaseNameOf } from "../lease/lease-acquire.ts";
import { RunLease } from "../lease/run-lease.ts";
import type { RunContext } from "./run-context.ts";

/**
 * Takes the Lease of a run on this resource. Where that of a run which died is taken over, what that one saw of API servers is lost, as where its
 * Pod is started again at once: one that it waited for may have gone on a moment ago, or have begun to end. That counts as a silence, and as one
 * that leaves.
 * @throws as {@link RunLease.acquire}
 */
export async function takeLease(context: RunContext, resource: string): Promise<RunLease> {
  const { emit, options, seen } = context;
  let isContended = false;
  const lease = await RunLease.acquire({
    ...context,
    namespace: options.leaseNamespace,
    name: leaseNameOf(resource),
    onContended: (holder) => {
      isContended = true;
      emit({ type: "contended", holder });
    },
  });
  if (isContended) {
    seen?.tookOver();
  }
  return lease;
}
