import type { Test } from "tap";
import type { Client } from "../../src/kube/client.ts";

const RBAC = "/apis/rbac.authorization.k8s.io/v1";
const { signal } = new AbortController();

/** Gives a user of the control plane some rights in the whole cluster, until the test ends. */
export async function grant(client: Client, t: Test, user: string, rules: readonly object[]): Promise<void> {
  const metadata = { name: `test-${user}` };
  const base = { apiVersion: "rbac.authorization.k8s.io/v1", metadata };
  await client.create(`${RBAC}/clusterroles`, { ...base, kind: "ClusterRole", rules }, { signal });
  const roleRef = { apiGroup: "rbac.authorization.k8s.io", kind: "ClusterRole", name: metadata.name };
  const subjects = [{ apiGroup: "rbac.authorization.k8s.io", kind: "User", name: user }];
  await client.create(
    `${RBAC}/clusterrolebindings`,
    { ...base, kind: "ClusterRoleBinding", roleRef, subjects },
    { signal },
  );
  t.teardown(async () => {
    await client.delete(`${RBAC}/clusterrolebindings/${metadata.name}`, { signal });
    await client.delete(`${RBAC}/clusterroles/${metadata.name}`, { signal });
  });
}
