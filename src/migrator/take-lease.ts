import { leaseNameOf } from "../lease/lease-acquire.ts";
import { RunLease } from "../lease/run-lease.ts";
import type { RunContext } from "./run-context.ts";

/**
 * Takes the Lease of a run on this resource.
 * @throws as {@link RunLease.acquire}
 */
export function takeLease(context: RunContext, resource: string): Promise<RunLease> {
  const { emit, options } = context;
  return RunLease.acquire({
    ...context,
    namespace: options.leaseNamespace,
    name: leaseNameOf(resource),
    onContended: (holder) => emit({ type: "contended", holder }),
  });
}
