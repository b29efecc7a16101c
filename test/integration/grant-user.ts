import { type ApiClient, CLUSTER_ROLES } from "../api-client.ts";

/** Gives a user of the test a cluster role with these rules. */
export async function grantUser(api: ApiClient, user: string, rules: readonly object[]): Promise<void> {
  const metadata = { name: user };
  const about = { apiVersion: "rbac.authorization.k8s.io/v1", metadata };
  await api.create(CLUSTER_ROLES, { ...about, kind: "ClusterRole", rules });
  await api.create(
    { ...CLUSTER_ROLES, resource: "clusterrolebindings" },
    {
      ...about,
      kind: "ClusterRoleBinding",
      roleRef: { apiGroup: CLUSTER_ROLES.group, kind: "ClusterRole", name: user },
      subjects: [{ apiGroup: CLUSTER_ROLES.group, kind: "User", name: user }],
    },
  );
}
