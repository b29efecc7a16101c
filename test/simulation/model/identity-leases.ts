import { createHash } from "node:crypto";
import type { SimEtcd } from "./etcd.ts";
import type { ModelObject } from "./model-object.ts";
import { microTimeText, timeText } from "./server-context.ts";

/** The seconds for which a renewal counts, by default. */
const DURATION_SECONDS = 3_600;

/**
 * The name of the identity Lease of an API server.
 *
 * https://github.com/kubernetes/kubernetes/blob/v1.36.0/staging/src/k8s.io/apiserver/pkg/server/config.go
 */
export function identityOf(host: string): string {
  let identity = identities.get(host);
  if (identity === undefined) {
    const digest = createHash("sha256").update(host).digest("base64url").toLowerCase();
    identities.set(host, (identity = `apiserver-${digest.replaceAll(/[^a-z0-9]/g, "x").slice(0, 26)}`));
  }
  return identity;
}

/** Each API server asks for its own every 10 seconds. */
const identities = new Map<string, string>();

/** Creates or renews the identity Lease of an API server, as it does at its start and every 10 s. */
export function renewIdentityLease(
  etcd: SimEtcd,
  host: string,
  { process, now }: { readonly process: string; readonly now: number },
): void {
  const name = identityOf(host);
  const key = `/registry/leases/kube-system/${name}`;
  const found = etcd.get(key);
  const spec = {
    holderIdentity: `${name}_${process}`,
    leaseDurationSeconds: DURATION_SECONDS,
    renewTime: microTimeText(now),
  };
  const object: ModelObject = found === undefined ? newLease(etcd, { host, name, now }) : found.object;
  etcd.put(key, { object: { ...object, spec } }, found?.modRevision ?? 0);
}

/** Removes it, as an API server does that shuts down in order. */
export function deleteIdentityLease(etcd: SimEtcd, host: string): void {
  const key = `/registry/leases/kube-system/${identityOf(host)}`;
  const found = etcd.get(key);
  if (found !== undefined) etcd.delete(key, found.modRevision);
}

function newLease(
  etcd: SimEtcd,
  { host, name, now }: { readonly host: string; readonly name: string; readonly now: number },
): ModelObject {
  return {
    apiVersion: "coordination.k8s.io/v1",
    kind: "Lease",
    metadata: {
      name,
      namespace: "kube-system",
      uid: etcd.nextId(),
      creationTimestamp: timeText(now),
      labels: { "apiserver.kubernetes.io/identity": "kube-apiserver", "kubernetes.io/hostname": host },
    },
  };
}
