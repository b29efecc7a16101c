import { freezerOf } from "../freeze/freeze.ts";
import { CRD_FIELD_MANAGER, MIGRATING, OWNER, STORAGE_MIGRATING } from "../freeze/rule.ts";
import { inTreeMigrations, inTreeResourceOf, isInTreeUnfinished } from "../in-tree/in-tree-migrations.ts";
import type { Client } from "../kube/client.ts";
import { unlessForbidden, whose } from "../kube/errors.ts";
import { type Crd, CRDS } from "../kube/objects.ts";
import { retry } from "../kube/retry.ts";
import type { ApiClient } from "../old/kube/client.ts";

// What keeps the storage version of a CRD as it is and belongs to no run of ksvm: no run takes it away.

/** What keeps the condition StorageMigrating on a CRD: `stuck` where no migration of Kubernetes' own migrator does. */
export type ConditionState =
  | { readonly state: "absent" | "stuck" }
  /** `note` says what explains it, or why that is not known. */
  | { readonly state: "explained"; readonly note: string };

/** Finds out what the condition of Kubernetes' own migrator is there for. */
export async function conditionState(
  client: ApiClient,
  { metadata: { name }, status }: Crd,
  signal: AbortSignal,
): Promise<ConditionState> {
  if (!isStorageMigrating({ status })) return { state: "absent" };
  const list = () => unlessForbidden(inTreeMigrations(client, { signal }));
  const all = await retry(client.kube, list, { signal });
  if (all === undefined) {
    const what = `what explains condition ${STORAGE_MIGRATING}`;
    return { state: "explained", note: `cannot look for ${what}: this user may not list migrations of Kubernetes` };
  }
  const running = all.find((one) => isInTreeUnfinished(one) && inTreeResourceOf(one) === name);
  if (running === undefined) return { state: "stuck" };
  const by = `storageversionmigrations.storagemigration.k8s.io "${running.metadata.name}"`;
  return {
    state: "explained",
    note: `condition ${STORAGE_MIGRATING} stays: ${by} is not finished; delete it to end it`,
  };
}

/**
 * Takes the condition off with which Kubernetes' own migrator began a migration that it never ended. It may have pruned
 * storedVersions when it began, and nothing shows that once the condition is gone: in the same write storedVersions
 * lists every version of the CRD.
 *
 * @returns the versions that are listed again; `undefined` where the condition was gone already
 */
export async function clearCondition(
  client: Client,
  name: string,
  signal: AbortSignal,
): Promise<readonly string[] | undefined> {
  let listed: readonly string[] = [];
  const isCleared = await changeCrd(client, `${CRDS}/${name}`, "/status", signal, ({ spec, status }) => {
    if (!isStorageMigrating({ status })) return undefined;
    const { conditions = [], storedVersions = [] } = status ?? {};
    listed = spec.versions.map((version) => version.name).filter((version) => !storedVersions.includes(version));
    const others = conditions.filter(({ type }) => type !== STORAGE_MIGRATING);
    return { status: { conditions: others, storedVersions: [...storedVersions, ...listed] } };
  });
  return isCleared ? listed : undefined;
}

/** Lifts the freeze of another client. That of a run which came meanwhile stays. @returns whether there was one */
export async function liftForeignFreeze(client: Client, name: string, signal: AbortSignal): Promise<boolean> {
  return changeCrd(client, `${CRDS}/${name}`, "", signal, ({ metadata }) =>
    freezerOf(metadata) === "other" ? { metadata: { annotations: { [MIGRATING]: null, [OWNER]: null } } } : undefined,
  );
}

/** Whether Kubernetes' own migrator says that it is at work. */
export function isStorageMigrating({
  status,
}: {
  readonly status?:
    | { readonly conditions?: readonly { readonly type: string; readonly status: string }[] | null }
    | undefined;
}): boolean {
  return (status?.conditions ?? []).some((one) => one.type === STORAGE_MIGRATING && one.status === "True");
}

const MAX_CONFLICTS = 20;

/**
 * Changes a CRD as it was read.
 * @param changeOf `undefined` where nothing is to be done
 * @returns whether it was changed
 */
export async function changeCrd(
  client: Client,
  path: string,
  subresource: "" | "/status",
  signal: AbortSignal,
  changeOf: (crd: Crd) => { readonly metadata?: object; readonly spec?: object; readonly status?: object } | undefined,
  fieldManager = CRD_FIELD_MANAGER,
): Promise<boolean> {
  for (let conflicts = 0; ; conflicts++) {
    const crd = await retry(client, () => client.find<Crd>(path, { signal }), { signal });
    const body = crd && changeOf(crd);
    if (crd === undefined || body === undefined) return false;
    const { resourceVersion, uid } = crd.metadata;
    const patch = { ...body, metadata: { ...body.metadata, uid, resourceVersion } };
    const options = { fieldManager, signal };
    try {
      await retry(client, () => client.patch(`${path}${subresource}`, patch, options), { signal });
      return true;
    } catch (error) {
      if (whose(error) !== "conflict" || conflicts === MAX_CONFLICTS) throw error;
    }
  }
}
