import { KsvmError } from "../errors.ts";
import type { Client } from "../kube/client.ts";
import { unlessForbidden, whose } from "../kube/errors.ts";
import type { KubeList, KubeObject, Resource } from "../kube/objects.ts";
import { retry } from "../kube/retry.ts";

/** A migration of Kubernetes' own migrator (KEP-4192). */
interface InTreeMigration extends KubeObject {
  readonly spec: { readonly resource: { readonly group?: string; readonly resource: string } };
  readonly status?: { readonly conditions?: readonly { readonly type: string; readonly status: string }[] | null };
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
  const running = (await unfinished(client, signal)).find(
    ({ spec: { resource } }) => resource.resource === plural && (resource.group ?? "") === group,
  );
  return running && new InTreeRunning(running.metadata.name);
}

/** None where the API is not served, or this user may not see it. */
async function unfinished(client: Client, signal: AbortSignal): Promise<readonly InTreeMigration[]> {
  for (const version of ["v1", "v1beta1"]) {
    const path = `/apis/storagemigration.k8s.io/${version}/storageversionmigrations`;
    try {
      const list = (): Promise<KubeList<InTreeMigration> | undefined> =>
        unlessForbidden(client.list<InTreeMigration>(path, { signal }));
      const { items = [] } = (await retry(client, list, { signal })) ?? {};
      const has = ({ status }: InTreeMigration, ...types: readonly string[]): boolean =>
        (status?.conditions ?? []).some((one) => types.includes(one.type) && one.status === "True");
      // One that nobody has begun may never begin: the migrator may be switched off.
      return items.filter((one) => has(one, "Running") && !has(one, "Succeeded", "Failed"));
    } catch (error) {
      if (whose(error) !== "gone") throw error;
    }
  }
  return [];
}
