import type { Client } from "../kube/client.ts";
import { whose } from "../kube/errors.ts";
import { type Crd, CRDS } from "../kube/objects.ts";
import { retry } from "../kube/retry.ts";
import { freezerOf } from "./freeze.ts";
import { CRD_FIELD_MANAGER, MIGRATING, OWNER, STORAGE_MIGRATING } from "./rule.ts";

// What keeps the storage version of a CRD as it is and belongs to no run of ksvm: no run takes it away.

/** Whether Kubernetes' own migrator says that it is at work. */
export function isStorageMigrating({ status }: { readonly status?: Crd["status"] | undefined }): boolean {
  return (status?.conditions ?? []).some((one) => one.type === STORAGE_MIGRATING && one.status === "True");
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
  const isCleared = await changeCrd(client, name, { subresource: "/status", signal }, ({ spec, status }) => {
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
  return changeCrd(client, name, { signal }, ({ metadata }) =>
    freezerOf(metadata) === "other" ? { metadata: { annotations: { [MIGRATING]: null, [OWNER]: null } } } : undefined,
  );
}

const MAX_CONFLICTS = 20;

/**
 * Changes a CRD as it was read.
 * @param changeOf `undefined` where nothing is to be done
 * @returns whether it was changed
 */
export async function changeCrd(
  client: Client,
  name: string,
  options: { readonly subresource?: "" | "/status"; readonly fieldManager?: string; readonly signal: AbortSignal },
  changeOf: (crd: Crd) => { readonly metadata?: object; readonly spec?: object; readonly status?: object } | undefined,
): Promise<boolean> {
  const { fieldManager = CRD_FIELD_MANAGER, signal, subresource = "" } = options;
  const path = `${CRDS}/${encodeURIComponent(name)}`;
  for (let conflicts = 0; ; conflicts++) {
    const crd = await retry(client, () => client.find<Crd>(path, { signal }), { signal });
    const body = crd && changeOf(crd);
    if (crd === undefined || body === undefined) return false;
    const { resourceVersion, uid } = crd.metadata;
    const patch = { ...body, metadata: { ...body.metadata, uid, resourceVersion } };
    try {
      await retry(client, () => client.patch(`${path}${subresource}`, patch, { fieldManager, signal }), { signal });
      return true;
    } catch (error) {
      if (whose(error) !== "conflict" || conflicts === MAX_CONFLICTS) throw error;
    }
  }
}
