import { parseAllDocuments } from "yaml";
import type { NewObject } from "../api-client.ts";
import type { Cluster } from "./cluster.ts";
import { applyAll, NAMESPACE, startAsServiceAccount } from "./installation.ts";

/** A ServiceAccount with what `ksvm rbac` prints for these arguments, and nothing else. @returns its kubeconfig */
export async function accountFor(cluster: Cluster, account: string, args: readonly string[]): Promise<string> {
  const binding = ["--name", account, "--service-account", `${NAMESPACE}/${account}`];
  const printed = await cluster.ksvm(["rbac", ...args, ...binding]);
  if (printed.code !== 0) throw new Error(printed.stderr);
  const metadata = { name: account, namespace: NAMESPACE };
  await applyAll(cluster.api, [
    { apiVersion: "v1", kind: "Namespace", metadata: { name: NAMESPACE } },
    { apiVersion: "v1", kind: "ServiceAccount", metadata },
    ...parseAllDocuments(printed.stdout).map((document) => document.toJS() as NewObject),
  ]);
  return startAsServiceAccount(cluster, account);
}
