import { resourceNameOf } from "../api/migration.ts";
import type { Resource } from "../old/kube/resources.ts";
import type { CrdFacts } from "./crd-facts.ts";
import { agreementOf } from "./agreement.ts";
import { isSubresource, missingVerbs, withoutShared } from "../resources/migratable.ts";
import type { StorageVersionFacts } from "../old/apiservers/storage-version-facts.ts";

/** One resource in one served version, as an API server's discovery shows it. */
export interface DiscoveredResource extends Resource {
  readonly kind: string;
  readonly verbs: readonly string[];
  /** Empty where the API server does not tell how the resource is stored. */
  readonly hash: string;
}

/** A version of a group that an API server lists and does not show, as where an aggregated API is down. */
export interface UnavailableVersion {
  readonly group: string;
  readonly version: string;
  readonly reason: string;
  /** Whether the API server says that it does not serve it (404). */
  readonly isMissing: boolean;
}

/** What one API server shows. */
export interface ServerDiscovery {
  readonly server: string;
  /** The preferred version of each group first. */
  readonly resources: readonly DiscoveredResource[];
  readonly unavailable: readonly UnavailableVersion[];
}

/** What else is known when discovery is read. */
export interface SurveyContext {
  /** By name. */
  readonly crds: ReadonlyMap<string, CrdFacts>;
  /** By resource name; empty where the StorageVersion API is not served. */
  readonly storageVersions: ReadonlyMap<string, StorageVersionFacts>;
  /** Names of the live identity Leases; missing where they cannot be read. */
  readonly identities?: readonly string[] | undefined;
  /** Groups that a user excluded; the core group is the empty name. */
  readonly excludedGroups: readonly string[];
  /** Names of the only resources that a user wants migrated. @default all of them */
  readonly onlyResources?: readonly string[] | undefined;
}

/** A resource that can be migrated, as all API servers together show it. */
export interface Observed extends Resource {
  /** As its StorageState is called. */
  readonly name: string;
  /** Every hash that an API server shows, each once. */
  readonly hashes: readonly string[];
  /** The one that all of them encode with; missing where they do not agree. */
  readonly agreed?: string;
  /** Why they do not agree. */
  readonly disagreement?: string;
  readonly crd?: CrdFacts;
  /** `uid/resourceVersion` of its StorageVersion. */
  readonly storageVersion?: string;
}

/** A resource that the trigger leaves out, and why. */
export interface LeftOut {
  readonly name: string;
  readonly reason: string;
  /** Whether the reason is that another resource, which is looked at, has the same objects. */
  readonly isShared: boolean;
  /** Whether a user switched the trigger off for it. */
  readonly isOptedOut: boolean;
}

/** What there is to look after. */
export interface Survey {
  readonly observed: readonly Observed[];
  readonly leftOut: readonly LeftOut[];
  /** With the API server that does not show them. Nothing is known of any resource of their groups. */
  readonly unavailable: readonly (UnavailableVersion & { readonly server: string })[];
}

/** Puts together what the API servers show. Resources of a group that one of them does not show are in no list. */
export function surveyOf(servers: readonly ServerDiscovery[], context: SurveyContext): Survey {
  const unavailable = servers.flatMap(({ server, unavailable: versions }) =>
    versions.filter((version) => !isOfAnotherRelease(version, servers)).map((version) => ({ ...version, server })),
  );
  const hidden = new Set(unavailable.map(({ group }) => group));
  const found = byName(servers);
  const observed: Observed[] = [];
  const leftOut: LeftOut[] = [];
  for (const [name, entries] of found) {
    const group = entries.flat()[0]?.group ?? "";
    const reason = reasonToLeaveOut(name, entries.flat(), context);
    if (reason !== undefined) {
      const isExcluded = context.excludedGroups.includes(group) || isUnwanted(name, context);
      const isOptedOut = isExcluded || context.crds.get(name)?.isOptedOut === true;
      leftOut.push({ name, reason, isShared: false, isOptedOut });
    } else if (!hidden.has(group)) {
      observed.push(observe(name, entries, context));
    }
  }
  const { kept, shared } = withoutShared(observed, ({ hashes }) => hashes.join(" "));
  for (const { name, sharedWith } of shared) {
    leftOut.push({ name, reason: `its objects are those of "${sharedWith}"`, isShared: true, isOptedOut: false });
  }
  return { observed: kept, leftOut, unavailable };
}

/**
 * API servers share the list of groups, so that in the middle of an upgrade the older ones list versions that only the
 * newer ones serve.
 */
function isOfAnotherRelease({ group, version, isMissing }: UnavailableVersion, servers: readonly ServerDiscovery[]) {
  return (
    isMissing &&
    servers.some(({ resources }) => resources.some((entry) => entry.group === group && entry.version === version))
  );
}

/** The entries of each resource, one list for each API server. */
function byName(servers: readonly ServerDiscovery[]): ReadonlyMap<string, readonly (readonly DiscoveredResource[])[]> {
  const found = new Map<string, DiscoveredResource[][]>();
  for (const [index, { resources }] of servers.entries()) {
    for (const entry of resources) {
      const name = resourceNameOf(entry);
      const lists = found.get(name) ?? servers.map(() => []);
      lists[index]?.push(entry);
      found.set(name, lists);
    }
  }
  return found;
}

function reasonToLeaveOut(
  name: string,
  entries: readonly DiscoveredResource[],
  context: SurveyContext,
): string | undefined {
  const { crds, excludedGroups } = context;
  const crd = crds.get(name);
  const isMigratable = entries.some(canBeRewritten);
  const hasHash = crd !== undefined || entries.some(({ hash }) => hash !== "");
  const reasons: readonly (readonly [boolean, string])[] = [
    [isSubresource(entries[0]?.resource ?? ""), "it is a subresource, which is not stored"],
    [excludedGroups.includes(entries[0]?.group ?? ""), "its group is excluded"],
    [isUnwanted(name, context), "it is not among the only resources to migrate"],
    [crd?.isOptedOut ?? false, "its CRD turns the trigger off"],
    [!isMigratable, "it cannot be listed and patched"],
    [!hasHash, "it has no storageVersionHash: it cannot be told how it is stored"],
  ];
  return reasons.find(([applies]) => applies)?.[1];
}

function isUnwanted(name: string, { onlyResources }: SurveyContext): boolean {
  return onlyResources !== undefined && !onlyResources.includes(name);
}

function canBeRewritten(entry: DiscoveredResource): boolean {
  return missingVerbs(entry).length === 0;
}

function observe(
  name: string,
  lists: readonly (readonly DiscoveredResource[])[],
  { crds, storageVersions, identities }: SurveyContext,
): Observed {
  const crd = crds.get(name);
  const storageVersion = storageVersions.get(name);
  const hashes = lists.map((entries) => entries.find(({ hash }) => hash !== "")?.hash ?? "");
  const kind = lists.flat()[0]?.kind ?? "";
  const isServed = lists.map((entries) => entries.length > 0);
  const agreement = agreementOf({ hashes, isServed, kind, crd, storageVersion, identities });
  return {
    ...versionOf(lists, crd),
    name,
    ...agreement,
    ...(crd === undefined ? {} : { crd }),
    ...(storageVersion === undefined ? {} : { storageVersion: storageVersion.key }),
  };
}

/** A version in which the objects can be rewritten: the CRD's own choice, else one that all API servers serve. */
function versionOf(lists: readonly (readonly DiscoveredResource[])[], crd: CrdFacts | undefined): Resource {
  const entries = lists.flat().filter(canBeRewritten);
  const isServedByAll = ({ version }: Resource): boolean =>
    lists.every((list) => list.some((entry) => entry.version === version));
  const chosen =
    entries.find(({ version }) => version === crd?.requestVersion) ?? entries.find(isServedByAll) ?? entries[0];
  const { group, version, resource } = chosen ?? { group: "", version: "", resource: "" };
  return { group, version, resource };
}
