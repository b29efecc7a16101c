import type { Lease } from "../../api/lease.ts";
import { compareResourceVersions } from "../../api/resource-version.ts";
import type { Clock } from "../../clock.ts";
import type { ApiClient } from "../kube/client.ts";
import { LEASES } from "../kube/resources.ts";
import { watchObject, type WatchOptions } from "../kube/watch.ts";
import { IDENTITY_NAMESPACE, IDENTITY_SELECTOR } from "./control-plane-objects.ts";

/** From where identity Leases are watched. */
export interface WatchFrom extends Pick<WatchOptions, "signal" | "timeoutSeconds" | "onOpen" | "onFailure"> {
  /** The resourceVersion after which events are told. */
  readonly from: string;
}

/** What becomes of the identity Leases. */
export function identityEvents(
  { transport }: ApiClient,
  clock: Clock,
  { from, ...options }: WatchFrom,
): ReturnType<typeof watchObject<Lease>> {
  return watchObject<Lease>(transport, LEASES, {
    ...options,
    namespace: IDENTITY_NAMESPACE,
    labelSelector: IDENTITY_SELECTOR,
    resourceVersion: from,
    clock,
    // What was missed would not show in a list: an API server that joined may be gone again.
    relistMs: Number.POSITIVE_INFINITY,
  });
}

/** Whether what was seen up to `seen` has everything up to `resourceVersion`. */
export function isUpTo(seen: string, resourceVersion: string): boolean {
  const order = compareResourceVersions(seen, resourceVersion);
  return order !== undefined && order >= 0;
}
