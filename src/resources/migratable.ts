import { resourceNameOf } from "../api/migration.ts";
import type { ApiResource, GroupVersion } from "../kube/discovery.ts";
import type { Resource } from "../kube/resources.ts";

/** A resource as discovery shows it, built-in or custom. */
export interface ServedResource extends Resource {
  readonly kind: string;
  readonly storageVersionHash?: string;
}

/** What discovery shows of one group and version. */
export interface DiscoveredVersion extends GroupVersion {
  readonly resources: readonly ApiResource[];
}

/** A resource that no migration is created for. */
export interface SkippedResource {
  /** `plural.group`; a subresource as `plural/subresource.group`. */
  readonly resource: string;
  readonly reason: string;
  /** Where it stands for a version of a group of which nothing could be read: the group, empty for the core group. */
  readonly group?: string;
}

/** Which resources are to be migrated. */
export interface Selection {
  readonly migratable: readonly ServedResource[];
  readonly skipped: readonly SkippedResource[];
}

interface Candidate {
  readonly resource: ServedResource;
  readonly problem: string | undefined;
}

/** The verbs without which objects cannot be rewritten, of those that a resource lacks. */
export function missingVerbs({ verbs }: Pick<ApiResource, "verbs">): readonly string[] {
  return ["list", "patch"].filter((verb) => !verbs.includes(verb));
}

/** Whether discovery lists a subresource, which is not stored. @param name as in `pods/status` */
export function isSubresource(name: string): boolean {
  return name.includes("/");
}

/**
 * Equal for two resources of different groups that are the same objects in etcd, as `events` and `events.k8s.io` are: a
 * storageVersionHash is of the group, version and kind that objects are stored as. An aggregated API server may show any
 * hash, so the plural counts, too.
 * @param hash that of one API server, or those of all
 */
export function storageKeyOf({ resource }: Pick<Resource, "resource">, hash: string): string {
  return `${resource} ${hash}`;
}

/** The resource of one entry of discovery. */
export function servedResourceOf({ group, version }: GroupVersion, entry: ApiResource): ServedResource {
  const { name, kind, storageVersionHash } = entry;
  return { group, version, resource: name, kind, ...(storageVersionHash === undefined ? {} : { storageVersionHash }) };
}

/**
 * Picks each stored resource once: of those that share their storage, the first one.
 *
 * @param versions in the order of discovery, the preferred version of a group first
 */
export function selectMigratable(versions: readonly DiscoveredVersion[]): Selection {
  const candidates = candidatesOf(versions);
  const migratable: ServedResource[] = [];
  const skipped: SkippedResource[] = [];
  const storedBy = new Map<string, string>();
  for (const [name, { resource, problem }] of candidates) {
    const key = storageKeyOf(resource, resource.storageVersionHash ?? "");
    const sharedWith = storedBy.get(key);
    if (problem !== undefined) {
      skipped.push({ resource: name, reason: problem });
    } else if (sharedWith !== undefined) {
      skipped.push({ resource: name, reason: `shares its storage with "${sharedWith}"` });
    } else {
      storedBy.set(key, name);
      migratable.push(resource);
    }
  }
  return { migratable, skipped };
}

/** A resource counts in the first version in which it can be migrated, else in the first one at all. */
function candidatesOf(versions: readonly DiscoveredVersion[]): ReadonlyMap<string, Candidate> {
  const found = new Map<string, Candidate>();
  for (const listed of versions) {
    for (const entry of listed.resources) {
      const resource = servedResourceOf(listed, entry);
      const name = resourceNameOf(resource);
      const candidate = { resource, problem: problemOf(entry) };
      const known = found.get(name);
      if (known === undefined || (known.problem !== undefined && candidate.problem === undefined)) {
        found.set(name, candidate);
      }
    }
  }
  return found;
}

function problemOf(entry: ApiResource): string | undefined {
  const { name, storageVersionHash } = entry;
  if (isSubresource(name)) {
    return "is a subresource";
  }
  const missing = missingVerbs(entry);
  if (missing.length > 0) {
    return `cannot be migrated: its API server does not offer ${missing.join(" and ")}`;
  }
  return storageVersionHash === undefined || storageVersionHash === ""
    ? "its API server gives no storageVersionHash, as those behind an APIService; create a migration by hand if it needs one"
    : undefined;
}
