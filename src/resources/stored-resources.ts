import { type ApiService, apiServiceNameOf, isAggregated } from "../api/api-service.ts";
import type { CustomResourceDefinition } from "../api/crd.ts";
import { resourceNameOf } from "../api/migration.ts";
import { listProjected } from "../old/kube/list-projected.ts";
import { API_SERVICES, CRDS, type Resource } from "../old/kube/resources.ts";
import { crdProjection } from "./crds.ts";
import { type DiscoverContext, discoverMigratable } from "./discover.ts";
import type { ServedResource, SkippedResource } from "./migratable.ts";

/** Every resource whose objects are in etcd. */
export interface StoredResources {
  /** `plural.group` each, the plural alone in the core group. */
  readonly names: readonly string[];
  /** The same; without a version where discovery shows none. */
  readonly resources: readonly Resource[];
  /**
   * What is left out although it may be stored, with the reason: aggregated API servers have a storage of their own.
   */
  readonly leftOut: readonly SkippedResource[];
  /** The same, and what has no objects in etcd. */
  readonly skipped: readonly SkippedResource[];
  /** Versions of groups that could not be read: resources of theirs may be missing. */
  readonly unread: readonly SkippedResource[];
}

/** CRDs on one page: they may be a megabyte each. */
const CRD_PAGE_SIZE = 40;

/**
 * Every resource that is stored: what discovery shows, and every CRD: the API server gives no storageVersionHash for
 * one whose storage version is not served.
 * @throws {ApiError}
 */
export async function storedResources(context: DiscoverContext): Promise<StoredResources> {
  const { client, retrier, signal } = context;
  const crds = await crdNames(context);
  const apiServices = await retrier.run(() => client.list<ApiService>(API_SERVICES, { signal }), signal);
  const { migratable, skipped, unread } = await discoverMigratable(context);
  const { aggregated, own } = partedBy(apiServices.filter(isAggregated), migratable);
  const ownNames = new Set(own.map(resourceNameOf));
  // A CRD counts even if an aggregated API server serves its group: its objects are in etcd, and its run says why it
  // cannot rewrite them.
  const resources = [...own, ...crds.filter((name) => !ownNames.has(name)).map(resourceOfCrd)];
  const names = resources.map(resourceNameOf);
  const reason = "an aggregated API server stores it, and encrypts it by a configuration of its own";
  const isLeftOut = ({ resource }: SkippedResource): boolean => !names.includes(resource);
  const others = aggregated.map((one) => ({ resource: resourceNameOf(one), reason })).filter(isLeftOut);
  const left = skipped.filter(isLeftOut);
  const leftOut = [...others, ...left.filter(({ mayBeStored = false }) => mayBeStored)];
  return { names, resources, leftOut, skipped: [...left, ...others], unread };
}

/** The version is a hint that another one may take the place of. */
function resourceOfCrd(name: string): Resource {
  const [resource = "", ...group] = name.split(".");
  return { group: group.join("."), version: "", resource };
}

/** Those that aggregated API servers serve, and all others. */
function partedBy(
  apiServices: readonly ApiService[],
  resources: readonly ServedResource[],
): { readonly aggregated: readonly ServedResource[]; readonly own: readonly ServedResource[] } {
  const names = new Set(apiServices.map(({ metadata }) => metadata.name));
  const isOthers = ({ group, version }: ServedResource): boolean => names.has(apiServiceNameOf(group, version));
  return {
    aggregated: resources.filter(isOthers),
    own: resources.filter((resource) => !isOthers(resource)),
  };
}

/** The names of all CRDs. */
async function crdNames({
  client,
  retrier,
  signal,
}: Pick<DiscoverContext, "client" | "retrier" | "signal">): Promise<readonly string[]> {
  const list = { limit: CRD_PAGE_SIZE, projection: crdProjection({ name: "all" }), signal };
  const { items } = await retrier.run(() => listProjected(client.transport, CRDS, list), signal);
  return items.map((crd) => (crd as CustomResourceDefinition).metadata.name);
}
