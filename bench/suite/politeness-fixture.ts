import { readFileSync } from "node:fs";
import { parseAllDocuments } from "yaml";
import { type NewObject, type Resource } from "../../test/api-client.ts";
import type { Cluster } from "../../test/integration/cluster.ts";
import { directRoute, type Route } from "./route.ts";

/** Users whom priority and fairness does not exempt, as it does the group system:masters. */
export const USERS = [{ name: "migrator" }, { name: "foreground" }] as const;

const CONFIG_MAPS: Resource = { group: "", version: "v1", resource: "configmaps" };
const BINDINGS: Resource = { group: "rbac.authorization.k8s.io", version: "v1", resource: "clusterrolebindings" };
const FLOW = { group: "flowcontrol.apiserver.k8s.io", version: "v1" } as const;
const FLOW_SCHEMAS: Resource = { ...FLOW, resource: "flowschemas" };
const LEVELS: Resource = { ...FLOW, resource: "prioritylevelconfigurations" };
const INSTALLED_LEVEL = "ksvm-rewrite";
const SCHEMA = "ksvm-bench";

/** The ConfigMaps that the clients read and write, and the rights of the users. */
export async function prepareClients({ api }: Cluster): Promise<void> {
  for (const name of ["foreground", "background"]) {
    const metadata = { name, namespace: "default" };
    await api.create(CONFIG_MAPS, { apiVersion: "v1", kind: "ConfigMap", metadata, data: { text: "x".repeat(1_000) } });
  }
  await api.create(BINDINGS, {
    apiVersion: "rbac.authorization.k8s.io/v1",
    kind: "ClusterRoleBinding",
    metadata: { name: "ksvm-bench" },
    roleRef: { apiGroup: "rbac.authorization.k8s.io", kind: "ClusterRole", name: "cluster-admin" },
    subjects: USERS.map(({ name }) => ({ apiGroup: "rbac.authorization.k8s.io", kind: "User", name })),
  });
}

/** As which a contender migrates. */
export function routeOfMigrator(cluster: Cluster): Route {
  return { ...directRoute(cluster), kubeconfig: cluster.controlPlane.kubeconfigFor("migrator") };
}

/** Has the writes of the migrator queue as those of an installed ksvm do, by deploy/base. @returns what ends that */
export async function queueRewrites({ api }: Cluster): Promise<() => Promise<void>> {
  const file = new URL("../../deploy/base/flow-control.yaml", import.meta.url);
  const manifests = parseAllDocuments(readFileSync(file, "utf8")).map((one) => one.toJS() as NewObject);
  const level = manifests.find(
    ({ kind, metadata }) => kind === "PriorityLevelConfiguration" && metadata.name === INSTALLED_LEVEL,
  );
  if (level === undefined) throw new Error(`deploy/base has no priority level "${INSTALLED_LEVEL}"`);
  await api.create(LEVELS, level);
  await api.create(FLOW_SCHEMAS, {
    apiVersion: "flowcontrol.apiserver.k8s.io/v1",
    kind: "FlowSchema",
    metadata: { name: SCHEMA },
    spec: {
      matchingPrecedence: 1_000,
      priorityLevelConfiguration: { name: INSTALLED_LEVEL },
      rules: [
        {
          subjects: [{ kind: "User", user: { name: "migrator" } }],
          resourceRules: [
            {
              verbs: ["list", "patch", "update"],
              apiGroups: ["example.com"],
              resources: ["*"],
              namespaces: ["*"],
              clusterScope: true,
            },
          ],
        },
      ],
    },
  });
  return async () => {
    await api.delete(FLOW_SCHEMAS, { name: SCHEMA });
    await api.delete(LEVELS, { name: INSTALLED_LEVEL });
  };
}
