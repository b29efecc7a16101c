import { type ApiClient, LEASES } from "../api-client.ts";
import { eventually } from "../integration/cluster.ts";

interface IdentityLease {
  readonly metadata: { readonly name: string; readonly labels?: Readonly<Record<string, string>> };
}

/** The name of the identity Lease of the API server on a host, once it has one. @throws {Error} if none appears. */
export async function identityOfHost(api: ApiClient, host: string): Promise<string> {
  const labelSelector = "apiserver.kubernetes.io/identity=kube-apiserver";
  let identity = "";
  await eventually(async () => {
    const leases = await api.list<IdentityLease>(LEASES, { namespace: "kube-system", labelSelector });
    const lease = leases.find(({ metadata }) => metadata.labels?.["kubernetes.io/hostname"] === host);
    identity = lease?.metadata.name ?? "";
    return identity !== "";
  }, `the API server on ${host} has an identity Lease`);
  return identity;
}
