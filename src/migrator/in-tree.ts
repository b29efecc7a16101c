import type { V1Condition } from "@kubernetes/client-node";
import { KsvmError } from "../errors.ts";
import type { Client } from "../kube/client.ts";
import { unlessForbidden, whose } from "../kube/errors.ts";
import { type KubeList, type KubeObject, type Resource, resourceName } from "../kube/objects.ts";
import { retry } from "../kube/retry.ts";

/** The API group of Kubernetes' own storage version migrator. */
export const IN_TREE_GROUP = "storagemigration.k8s.io";

type Condition = Pick<V1Condition, "type" | "status"> & Partial<Pick<V1Condition, "reason" | "message">>;

/** A migration of Kubernetes' own migrator (KEP-4192). */
export interface InTreeMigration extends KubeObject {
  readonly spec: { readonly resource: { readonly group?: string; readonly resource: string } };
  readonly status?: { readonly conditions?: readonly Condition[] | null };
}

/** `plural.group` of what it migrates. */
export function inTreeResource({ spec: { resource } }: InTreeMigration): string {
  return resourceName({ group: resource.group ?? "", plural: resource.resource });
}

/** A migration that has ended stays as it is. */
export function inTreeState({ status }: InTreeMigration): "Succeeded" | "Failed" | "Running" | "Pending" {
  const isTrue = (type: string): boolean =>
    (status?.conditions ?? []).some((one) => one.type === type && one.status === "True");
  return (["Succeeded", "Failed", "Running"] as const).find(isTrue) ?? "Pending";
}

/**
 * Kubernetes' own migrator works on the resource. Nothing rests on it: two migrations at the same time are no danger,
 * they only make both slower. So the attempt ends, others go on, and after a while the run does so beside it.
 */
export class InTreeRunning extends KsvmError {
  override readonly name = "InTreeRunning";

  constructor(migration: string) {
    super("OtherMigratorActive", `the StorageVersionMigration "${migration}" of Kubernetes is running`);
  }
}

/** Why a migration had better wait; `undefined` where Kubernetes' own migrator does not work on the resource. */
export async function runningInTree(
  client: Client,
  { group, plural }: Pick<Resource, "group" | "plural">,
  signal: AbortSignal,
): Promise<InTreeRunning | undefined> {
  // One that nobody has begun may never begin: the migrator may be switched off.
  const running = ((await inTreeMigrations(client, signal)) ?? []).find(
    (one) => inTreeState(one) === "Running" && inTreeResource(one) === resourceName({ group, plural }),
  );
  return running && new InTreeRunning(running.metadata.name);
}

/** All of them; none where the API is not served, `undefined` where this user may not list them. */
export async function inTreeMigrations(
  client: Client,
  signal: AbortSignal,
): Promise<readonly InTreeMigration[] | undefined> {
  for (const version of ["v1", "v1beta1"]) {
    const path = `/apis/${IN_TREE_GROUP}/${version}/storageversionmigrations`;
    try {
      const list = (): Promise<KubeList<InTreeMigration> | undefined> =>
        unlessForbidden(client.list<InTreeMigration>(path, { signal }));
      // Where the API server does not have this API itself, a CRD may have its name.
      return (await retry(client, list, { signal }))?.items.filter(
        ({ spec }) => typeof spec?.resource?.resource === "string",
      );
    } catch (error) {
      if (whose(error) !== "gone") throw error;
    }
  }
  return [];
}
