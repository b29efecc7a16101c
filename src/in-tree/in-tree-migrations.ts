import { listIn, objectIn, textIn, textsIn } from "../api/json-fields.ts";
import type { ObjectMeta } from "../api/meta.ts";
import { resourceNameOf } from "../api/migration.ts";
import { metaIn } from "../api/parse-meta.ts";
import { isNotFound } from "../old/kube/absent.ts";
import type { Projection } from "../old/json/json-projection.ts";
import type { CallOptions } from "../old/kube/call-options.ts";
import { type ApiClient, isConflict } from "../old/kube/client.ts";
import { preferredVersions } from "../old/kube/discovery.ts";
import { DoubtfulAnswer } from "../old/kube/errors.ts";
import { listProjected } from "../old/kube/list-projected.ts";
import { metadataProjection } from "../old/kube/metadata-projection.ts";
import type { Resource } from "../old/kube/resources.ts";

/** The API group of Kubernetes' own storage version migrator. */
export const IN_TREE_GROUP = "storagemigration.k8s.io";

/** A StorageVersionMigration of Kubernetes' own migrator. */
export interface InTreeMigration {
  readonly metadata: ObjectMeta;
  readonly spec: { readonly resource: { readonly group?: string; readonly resource: string } };
  readonly status?: {
    readonly conditions?:
      | readonly {
          readonly type: string;
          readonly status: string;
          readonly reason?: string;
          readonly message?: string;
          readonly lastTransitionTime?: string;
        }[]
      | null;
  };
}

const PAGE_SIZE = 500;
/** What is read of each: other clients may make them as large as an object may be. */
const IN_TREE_FIELDS: Projection = {
  fields: {
    metadata: metadataProjection({
      generation: "all",
      creationTimestamp: "all",
    }),
    spec: { fields: { resource: { fields: { group: "all", resource: "all" } } } },
    status: { fields: { conditions: "all" } },
  },
};

/**
 * The migrations of Kubernetes' own migrator, in the version that the API server prefers; none where the group is not
 * served. `spec.resource` has had a group and a resource since v1alpha1.
 *
 * https://github.com/kubernetes/enhancements/tree/master/keps/sig-api-machinery/4192-svm-in-tree
 * @throws {ApiError} 403 where the user may not list them.
 */
export async function inTreeMigrations(
  client: ApiClient,
  options: CallOptions = {},
): Promise<readonly InTreeMigration[]> {
  const resource = await servedInTree(client, options);
  return resource === undefined ? [] : listInTree(client, resource, options);
}

/**
 * The migrations of Kubernetes' own migrator, of a resource that the API server serves.
 * @throws as {@link inTreeMigrations}.
 */
async function listInTree(
  client: ApiClient,
  resource: Resource,
  options: CallOptions = {},
): Promise<readonly InTreeMigration[]> {
  try {
    const list = { limit: PAGE_SIZE, projection: IN_TREE_FIELDS, ...options };
    const { items } = await listProjected(client.transport, resource, list);
    return items.flatMap((value) => parseInTree(value) ?? []);
  } catch (error) {
    // A moment ago it was listed: the next look shows whether there is another version of it.
    throw isNotFound(error) ? new DoubtfulAnswer(`${error.message}, but /apis lists ${IN_TREE_GROUP}`, error) : error;
  }
}

/**
 * Deletes one as it was read.
 * @returns whether it was deleted: one that was written since is left alone
 * @throws {ApiError} 403 where the user may not delete it.
 */
export async function deleteInTree(
  client: ApiClient,
  { metadata: { name, resourceVersion, uid } }: InTreeMigration,
  options: CallOptions = {},
): Promise<boolean> {
  const resource = await servedInTree(client, options);
  if (resource === undefined) {
    return false;
  }
  try {
    const preconditions = { uid, resourceVersion };
    await client.delete(resource, { name }, { preconditions, ...options });
    return true;
  } catch (error) {
    if (isConflict(error)) {
      return false;
    }
    throw error;
  }
}

/**
 * Reads one; `undefined` where it does not say what it migrates, so that it is at work on nothing. Where the API server
 * does not have this API itself, a CRD may have its name.
 */
export function parseInTree(value: unknown): InTreeMigration | undefined {
  const { metadata, spec, status } = objectIn(value) ?? {};
  const { group, resource } = objectIn(objectIn(spec)?.["resource"]) ?? {};
  const read = metaIn(metadata);
  if (read === undefined || typeof resource !== "string") {
    return undefined;
  }
  return {
    metadata: read,
    spec: { resource: { group: textIn(group) ?? "", resource } },
    status: statusIn(status),
  };
}

function statusIn(status: unknown): NonNullable<InTreeMigration["status"]> {
  const conditions = listIn(objectIn(status)?.["conditions"]).flatMap((one) => {
    const { type, status: isTrue, ...texts } = textsIn(one) ?? {};
    return type === undefined || isTrue === undefined ? [] : [{ ...texts, type, status: isTrue }];
  });
  return { conditions };
}

/** `plural.group` of what it migrates. */
export function inTreeResourceOf({ spec }: InTreeMigration): string {
  return resourceNameOf(spec.resource);
}

/** `Succeeded`, `Failed`, `Running`, or `Pending` where nothing is True yet. */
export function inTreeStateOf({ status }: InTreeMigration): string {
  const isTrue = (type: string): boolean =>
    (status?.conditions ?? []).some((condition) => condition.type === type && condition.status === "True");
  return ["Succeeded", "Failed", "Running"].find(isTrue) ?? "Pending";
}

/** Whether it may still write objects or the CRD. */
export function isInTreeUnfinished(migration: InTreeMigration): boolean {
  return !["Succeeded", "Failed"].includes(inTreeStateOf(migration));
}

/**
 * Migrations of Kubernetes' own migrator in the version that the API server prefers; `undefined` where it does not
 * serve the group. From the list of all groups: an answer for this group alone could be a proxy's 404.
 * @throws {ApiError}
 */
async function servedInTree({ transport }: ApiClient, options: CallOptions = {}): Promise<Resource | undefined> {
  const groups = await preferredVersions(transport, options);
  const version = groups.find(({ group }) => group === IN_TREE_GROUP)?.version;
  return version === undefined ? undefined : { group: IN_TREE_GROUP, version, resource: "storageversionmigrations" };
}
