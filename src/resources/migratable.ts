import { resourceNameOf } from "../api/migration.ts";
import type { DiscoveredResource } from "../apiservers/converge.ts";

/** A version of a group; the core group has an empty name. */
export interface GroupVersion {
  readonly group: string;
  readonly version: string;
}

/** What discovery shows of one group and version. */
export interface DiscoveredVersion extends GroupVersion {
  readonly resources: readonly DiscoveredResource[];
}

/** A resource as discovery shows it, built-in or custom. */
export interface ServedResource extends GroupVersion {
  /** The plural, as in the path. */
  readonly resource: string;
  readonly kind: string;
  readonly storageVersionHash?: string;
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

/**
 * The resources whose objects are also those of another resource, which is named with each. No other is left in
 * Kubernetes 1.30 and newer: the group `extensions`, which shared its resources with `apps` and `networking.k8s.io`, is
 * no longer served since 1.22. Equal hashes alone say nothing: an aggregated API server may show any plural and hash.
 */
export const SAME_OBJECTS: ReadonlyMap<string, string> = new Map([["events.events.k8s.io", "events"]]);

/**
 * Picks each stored resource once: in the first version in which it can be migrated.
 *
 * @param versions in the order of discovery, the preferred version of a group first
 */
export function selectMigratable(versions: readonly DiscoveredVersion[]): Selection {
  const found = new Map<string, { readonly resource: ServedResource; readonly problem: Problem | undefined }>();
  for (const listed of versions) {
    for (const entry of listed.resources) {
      const resource = servedResource(listed, entry);
      const name = resourceNameOf(resource);
      const problem = problemOf(entry);
      const known = found.get(name);
      if (known === undefined || (known.problem !== undefined && problem === undefined)) {
        found.set(name, { resource, problem });
      }
    }
  }

  const migratable: ServedResource[] = [];
  const skipped: SkippedResource[] = [];
  for (const [name, { problem, resource }] of found) {
    const sharedWith = SAME_OBJECTS.get(name) ?? "";
    const other = found.get(sharedWith);
    const hash = other?.problem === undefined ? other?.resource.storageVersionHash : undefined;
    if (problem !== undefined) skipped.push({ resource: name, ...problem });
    else if (hash !== undefined && hash === resource.storageVersionHash)
      skipped.push({ resource: name, reason: `shares its storage with "${sharedWith}"` });
    else migratable.push(resource);
  }
  return { migratable, skipped };
}

/** The resource of one entry of discovery. */
export function servedResource({ group, version }: GroupVersion, entry: DiscoveredResource): ServedResource {
  const { kind, name, storageVersionHash } = entry;
  return { group, version, resource: name, kind, ...(storageVersionHash === undefined ? {} : { storageVersionHash }) };
}

/** The verbs without which objects cannot be rewritten, of those that a resource lacks. */
export function missingVerbs({ verbs }: Pick<DiscoveredResource, "verbs">): readonly string[] {
  return ["list", "patch"].filter((verb) => !verbs.includes(verb));
}

type Problem = Pick<SkippedResource, "reason" | "mayBeStored">;

function problemOf(entry: DiscoveredResource): Problem | undefined {
  const { name, storageVersionHash = "", verbs } = entry;
  if (name.includes("/")) return { reason: "is a subresource" };
  const missing = missingVerbs(entry);
  if (missing.length > 0) {
    // A review is created and not kept, and what is only read may be made up for each answer.
    const isKept = verbs.includes("create") && (verbs.includes("get") || verbs.includes("list"));
    const reason = `cannot be migrated: its API server does not offer ${missing.join(" and ")}`;
    return { reason, ...(isKept ? { mayBeStored: true } : {}) };
  }
  if (storageVersionHash !== "") return undefined;
  const reason =
    "its API server gives no storageVersionHash, as those behind an APIService; " +
    "create a migration by hand if it needs one";
  return { reason, mayBeStored: true };
}
