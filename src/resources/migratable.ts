import { resourceNameOf } from "../api/migration.ts";
import type { ApiResource, GroupVersion } from "../old/kube/discovery.ts";
import type { Resource } from "../old/kube/resources.ts";

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
  /** Whether objects of it may be in a storage, which none of the resources that are kept stands for. @default false */
  readonly mayBeStored?: true;
}

/** Which resources are to be migrated. */
export interface Selection {
  readonly migratable: readonly ServedResource[];
  readonly skipped: readonly SkippedResource[];
}

interface Candidate {
  readonly resource: ServedResource;
  readonly problem: Problem | undefined;
}

type Problem = Pick<SkippedResource, "reason" | "mayBeStored">;

/** The verbs without which objects cannot be rewritten, of those that a resource lacks. */
export function missingVerbs({ verbs }: Pick<ApiResource, "verbs">): readonly string[] {
  return ["list", "patch"].filter((verb) => !verbs.includes(verb));
}

/** Whether discovery lists a subresource, which is not stored. @param name as in `pods/status` */
export function isSubresource(name: string): boolean {
  return name.includes("/");
}

/**
 * The resources whose objects are also those of another resource, which is named with each. No other is left in
 * Kubernetes 1.30 and newer: the group `extensions`, which shared its resources with `apps` and `networking.k8s.io`, is
 * no longer served since 1.22. Equal hashes alone say nothing: an aggregated API server may show any plural and hash.
 */
export const SAME_OBJECTS: ReadonlyMap<string, string> = new Map([["events.events.k8s.io", "events"]]);

/** Resources, each group of those that are the same objects once. */
export interface Distinct<T> {
  readonly kept: readonly T[];
  readonly shared: readonly { readonly name: string; readonly sharedWith: string }[];
}

/**
 * Leaves out resources that are the same objects in etcd as another one of the list: known to be, and stored the same
 * way.
 *
 * @param hashOf that of one API server, or those of all
 */
export function withoutShared<T extends Resource>(
  resources: readonly T[],
  hashOf: (resource: T) => string,
): Distinct<T> {
  const hashes = new Map(resources.map((resource) => [resourceNameOf(resource), hashOf(resource)]));
  const kept: T[] = [];
  const shared: { name: string; sharedWith: string }[] = [];
  for (const resource of resources) {
    const name = resourceNameOf(resource);
    const sharedWith = SAME_OBJECTS.get(name);
    if (sharedWith !== undefined && hashes.get(sharedWith) === hashOf(resource)) {
      shared.push({ name, sharedWith });
    } else {
      kept.push(resource);
    }
  }
  return { kept, shared };
}

/** The resource of one entry of discovery. */
export function servedResourceOf({ group, version }: GroupVersion, entry: ApiResource): ServedResource {
  const { name, kind, storageVersionHash } = entry;
  return { group, version, resource: name, kind, ...(storageVersionHash === undefined ? {} : { storageVersionHash }) };
}

/**
 * Picks each stored resource once.
 *
 * @param versions in the order of discovery, the preferred version of a group first
 */
export function selectMigratable(versions: readonly DiscoveredVersion[]): Selection {
  const candidates: ServedResource[] = [];
  const skipped: SkippedResource[] = [];
  for (const [name, { resource, problem }] of candidatesOf(versions)) {
    if (problem === undefined) {
      candidates.push(resource);
    } else {
      skipped.push({ resource: name, ...problem });
    }
  }
  const { kept, shared } = withoutShared(candidates, ({ storageVersionHash = "" }) => storageVersionHash);
  for (const { name, sharedWith } of shared) {
    skipped.push({ resource: name, reason: `shares its storage with "${sharedWith}"` });
  }
  return { migratable: kept, skipped };
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

function problemOf(entry: ApiResource): Problem | undefined {
  const { name, storageVersionHash } = entry;
  if (isSubresource(name)) {
    return { reason: "is a subresource" };
  }
  const missing = missingVerbs(entry);
  if (missing.length > 0) {
    const reason = `cannot be migrated: its API server does not offer ${missing.join(" and ")}`;
    return { reason, ...(isKept(entry) ? { mayBeStored: true } : {}) };
  }
  const reason =
    "its API server gives no storageVersionHash, as those behind an APIService; " +
    "create a migration by hand if it needs one";
  return storageVersionHash === undefined || storageVersionHash === "" ? { reason, mayBeStored: true } : undefined;
}

/** A review is created and not kept, and what is only read may be made up for each answer. */
function isKept({ verbs }: ApiResource): boolean {
  return verbs.includes("create") && (verbs.includes("get") || verbs.includes("list"));
}
