import type { Test } from "tap";
import { LEASES, MERGE_PATCH } from "../../src/old/kube/resources.ts";
import type { Cluster } from "./cluster.ts";

const RENEWED = { namespace: "kube-system", name: "some-controller" };

/**
 * Renews a Lease until the test ends, as something does all the time in a cluster: by that an API server tells, within a second, how far its
 * watch is.
 */
export async function renewLease(t: Pick<Test, "teardown">, { api }: Pick<Cluster, "api">): Promise<void> {
  await api.create(LEASES, { apiVersion: "coordination.k8s.io/v1", kind: "Lease", metadata: RENEWED });
  const renewing = setInterval(() => {
    const body = { spec: { renewTime: new Date().toISOString().replace("Z", "000Z") } };
    // Also while the API server restarts.
    void api.patch(LEASES, RENEWED, { type: MERGE_PATCH, body }).catch(() => undefined);
  }, 300);
  t.teardown(() => clearInterval(renewing));
}
