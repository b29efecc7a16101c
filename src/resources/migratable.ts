import { resourceNameOf } from "../api/migration.ts";
import type { ApiResource } from "../kube/discovery.ts";
import type { Resource } from "../kube/resources.ts";

/** What discovery shows of one group and version. */
export interface DiscoveredVersion {
  /** Empty for the core group. */
  readonly group: string;
  readonly version: string;
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
  readonly migratable: readonly Resource[];
  readonly skipped: readonly SkippedResource[];
}

interface Candidate {
  readonly resource: Resource;
  readonly problem: string | undefined;
  readonly hash: string | undefined;
}

/**
 * Picks each stored resource once.
 *
 * Two resources of different groups with an equal storageVersionHash are the same objects in etcd (`events` and
 * `events.k8s.io`): the hash is of the group, version and kind that they are stored as. The first one is taken.
 *
 * @param versions in the order of discovery, the preferred version of a group first
 */
export function selectMigratable(versions: readonly DiscoveredVersion[]): Selection {
  const candidates = candidatesOf(versions);
  const migratable: Resource[] = [];
  const skipped: SkippedResource[] = [];
  const storedBy = new Map<string, string>();
  for (const [name, { resource, problem, hash = "" }] of candidates) {
    const sharedWith = storedBy.get(hash);
    if (problem !== undefined) {
      skipped.push({ resource: name, reason: problem });
    } else if (sharedWith !== undefined) {
      skipped.push({ resource: name, reason: `shares its storage with "${sharedWith}"` });
    } else {
      storedBy.set(hash, name);
      migratable.push(resource);
    }
  }
  return { migratable, skipped };
}

/** A resource counts in the first version in which it can be migrated, else in the first one at all. */
function candidatesOf(versions: readonly DiscoveredVersion[]): ReadonlyMap<string, Candidate> {
  const found = new Map<string, Candidate>();
  for (const { group, version, resources } of versions) {
    for (const entry of resources) {
      const resource = { group, version, resource: entry.name };
      const name = resourceNameOf(resource);
      const candidate = { resource, problem: problemOf(entry), hash: entry.storageVersionHash };
      const known = found.get(name);
      if (known === undefined || (known.problem !== undefined && candidate.problem === undefined)) {
        found.set(name, candidate);
      }
    }
  }
  return found;
}

function problemOf({ name, verbs, storageVersionHash }: ApiResource): string | undefined {
  if (name.includes("/")) {
    return "is a subresource";
  }
  const missing = ["list", "patch"].filter((verb) => !verbs.includes(verb));
  if (missing.length > 0) {
    return `cannot be migrated: its API server does not offer ${missing.join(" and ")}`;
  }
  return storageVersionHash === undefined || storageVersionHash === ""
    ? "its API server gives no storageVersionHash, as those behind an APIService; create a migration by hand if it needs one"
    : undefined;
}
