import type { ObjectMeta } from "../src/api/meta.ts";

/** A Lease of coordination.k8s.io/v1. */
export interface Lease {
  readonly metadata: ObjectMeta;
  readonly spec?: LeaseSpec;
}

/** Times are of type `metav1.MicroTime`. */
export interface LeaseSpec {
  readonly holderIdentity?: string | null;
  readonly leaseDurationSeconds?: number;
  readonly acquireTime?: string;
  readonly renewTime?: string;
  readonly leaseTransitions?: number;
}

/** Who holds the Lease; empty if it is free, or missing. */
export function holderOf(lease: Pick<Lease, "spec"> | undefined): string {
  return lease?.spec?.holderIdentity ?? "";
}
