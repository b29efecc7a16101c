import type { FreezeOwner } from "../../api/owner.ts";
import { leaseNameOf } from "./lease-acquire.ts";

/** The default of `--lease-namespace`. The controller takes the namespace that it is installed in instead. */
export const DEFAULT_LEASE_NAMESPACE = "kube-system";

/** Where a Lease is. */
export interface LeaseRef {
  readonly namespace: string;
  readonly name: string;
}

/**
 * The Lease that an owner annotation names, where it may be that of a run on this CRD. A user who may write to a CRD can
 * write the annotation, too: the name has to follow from the CRD's, and the namespace has to be one that runs use.
 * @param namespace the one of this installation
 */
export function runLeaseOf(crdName: string, { lease }: FreezeOwner, namespace: string): LeaseRef | undefined {
  const name = leaseNameOf(crdName);
  return [namespace, DEFAULT_LEASE_NAMESPACE]
    .map((candidate) => ({ namespace: candidate, name }))
    .find((candidate) => lease === `${candidate.namespace}/${candidate.name}`);
}
