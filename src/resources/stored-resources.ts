import type { CustomResourceDefinition } from "../api/crd.ts";
import { resourceNameOf } from "../api/migration.ts";
import { listProjected } from "../kube/list-projected.ts";
import { CRDS } from "../kube/resources.ts";
import { crdProjection } from "./crd-projection.ts";
import { type DiscoverContext, discoverMigratable } from "./discover.ts";
import type { SkippedResource } from "./migratable.ts";

/** Every resource whose objects are in etcd. */
export interface StoredResources {
  /** `plural.group` each, the plural alone in the core group. */
  readonly names: readonly string[];
  /** What is left out although it may be stored, with the reason: aggregated API servers have a storage of their own. */
  readonly leftOut: readonly SkippedResource[];
  /** Versions of groups that could not be read: resources of theirs may be missing. */
  readonly unread: readonly SkippedResource[];
}

/** CRDs on one page: they may be a megabyte each. */
const CRD_PAGE_SIZE = 40;

/**
 * Every resource that is stored: what discovery shows, and every CRD: the API server gives no storageVersionHash for one whose
 * storage version is not served.
 * @throws {ApiError | TransportError}
 */
export async function storedResources(context: DiscoverContext): Promise<StoredResources> {
  const { client, retrier, signal } = context;
  const list = { limit: CRD_PAGE_SIZE, projection: crdProjection({ name: "all" }), signal };
  const { items } = await retrier.run(() => listProjected(client.transport, CRDS, list), signal);
  const crds = items.map((crd) => (crd as CustomResourceDefinition).metadata.name);
  const { migratable, skipped, unread } = await discoverMigratable(context);
  const names = [...new Set([...migratable.map(resourceNameOf), ...crds])];
  const leftOut = skipped.filter(({ resource, reason }) => !names.includes(resource) && mayBeStored(reason));
  return { names, leftOut, unread };
}

/** A subresource, what no client can list, and a second name of the same objects are no storage of their own. */
function mayBeStored(reason: string): boolean {
  return !/^(?:is a subresource|cannot be migrated|shares its storage)/.test(reason);
}
