import type { Client } from "../kube/client.ts";
import { unlessForbidden, whose } from "../kube/errors.ts";
import type { KubeList, KubeObject, Resource } from "../kube/objects.ts";
import { retry } from "../kube/retry.ts";

/** A migration of Kubernetes' own migrator (KEP-4192). */
interface InTreeMigration extends KubeObject {
  readonly spec: { readonly resource: { readonly group?: string; readonly resource: string } };
  readonly status?: { readonly conditions?: readonly { readonly type: string; readonly status: string }[] | null };
}

const POLL_MS = 5_000;
const TELL_EVERY_MS = 60_000;

/**
 * Waits while Kubernetes' own migrator works on the same resource. Nothing rests on it: a migration that begins later is no
 * danger, it only makes both slower.
 */
export async function waitForInTree(
  client: Client,
  { group, plural }: Pick<Resource, "group" | "plural">,
  { onWait, signal }: { readonly signal: AbortSignal; readonly onWait: (reason: string) => void },
): Promise<void> {
  const { clock } = client;
  for (let toldAt = Number.NEGATIVE_INFINITY; ; ) {
    const running = (await unfinished(client, signal)).find(
      ({ spec: { resource } }) => resource.resource === plural && (resource.group ?? "") === group,
    );
    if (running === undefined) return;
    if (clock.monotonic() - toldAt >= TELL_EVERY_MS) {
      toldAt = clock.monotonic();
      onWait(`the StorageVersionMigration "${running.metadata.name}" of Kubernetes is running`);
    }
    await clock.sleep(POLL_MS, signal);
  }
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
