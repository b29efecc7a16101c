import { resourceNameOf } from "../../api/migration.ts";
import { LEASES, type Resource } from "../kube/resources.ts";
import { leaseNameOf } from "../lease/lease-acquire.ts";
import { feelWhile } from "../retry/courtesy.ts";
import type { RunContext } from "./run-context.ts";

/**
 * Does what sends many requests, and slows down as long as other clients have to wait, except in an urgent run. It reads the Lease of the
 * run to tell: that goes through the API server to etcd as their reads do.
 * @throws what `work` throws.
 */
export function politely(context: RunContext, resource: Resource, work: () => Promise<void>): Promise<void> {
  const { client, isUrgent = false, options } = context;
  const lease = { namespace: options.leaseNamespace, name: leaseNameOf(resourceNameOf(resource)) };
  return isUrgent ? work() : feelWhile({ ...context, feel: (signal) => client.find(LEASES, lease, { signal }) }, work);
}
