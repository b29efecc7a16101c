import type { Clock } from "../../clock.ts";
import { unlessForbidden } from "../kube/unless-forbidden.ts";
import type { CallContext } from "../retry/call-context.ts";
import type { Arrivals } from "./arrivals.ts";
import { type IdentityLease, readLeases } from "./control-plane-objects.ts";

/**
 * All identity Leases, and `arrivals` is told how new they are: what is counted from here on is of the etcd that there is now.
 * @returns `undefined` where the user may not read them
 * @throws as {@link readLeases}
 */
export async function leasesNow({
  arrivals,
  client,
  clock,
  signal,
}: Pick<CallContext, "client" | "signal"> & { readonly arrivals: Arrivals; readonly clock: Clock }): Promise<
  readonly IdentityLease[] | undefined
> {
  const { seenTo } = arrivals;
  const list = await unlessForbidden(() => readLeases(client, clock, signal));
  if (list?.resourceVersion !== undefined) {
    arrivals.listed(seenTo, list.resourceVersion);
  }
  return list?.leases;
}
