import { agreement } from "../apiservers/agree.ts";
import type { ApiServerOptions } from "../apiservers/find.ts";
import { resourceNameOf, UNKNOWN_HASH } from "../api/migration.ts";
import type { Client } from "../kube/client.ts";
import { apiVersion } from "../kube/objects.ts";
import { readVersions } from "../resources/discover.ts";
import { selectMigratable, type SkippedResource } from "../resources/migratable.ts";
import type { CrdFacts } from "./crd-facts.ts";

/** A resource that can be migrated, and how it is stored. */
export interface Observed {
  /** As its StorageState is called. */
  readonly name: string;
  readonly group: string;
  /** A version in which the objects can be rewritten. */
  readonly version: string;
  readonly resource: string;
  /** The hashes of all versions that an API server may write now, each once. */
  readonly hashes: readonly string[];
  /** The one that all of them write; missing where they do not agree. */
  readonly agreed?: string;
  /** Why they do not agree. */
  readonly disagreement?: string;
  readonly crd?: CrdFacts;
}

/**
 * What a CRD alone shows. No API server is asked: `storedVersions` lists a version before the first of them writes it,
 * and the run of a CRD waits for those that are behind.
 *
 * @returns nothing where the CRD serves no version, so that no object can be read
 */
export function observeCrd(crd: CrdFacts): Observed | undefined {
  const { hash, name, requestVersion: version } = crd;
  const [resource = "", ...group] = name.split(".");
  if (version === undefined) return undefined;
  return { name, group: group.join("."), version, resource, hashes: [hash], agreed: hash, crd };
}

/** A version of a group that is listed and not served, as where an aggregated API is down. */
interface UnavailableVersion {
  readonly group: string;
  readonly groupVersion: string;
  readonly reason: string;
}

/** What the API servers show of resources that have no CRD. */
export interface BuiltIns {
  readonly observed: readonly Observed[];
  readonly leftOut: readonly SkippedResource[];
  /** Nothing is known of the resources of these groups. */
  readonly unavailable: readonly UnavailableVersion[];
  /** Whether no API server may serve a resource of this name any more. */
  readonly isGone: (name: string) => boolean;
}

/** An aggregated API that hangs must not hold up the others, in milliseconds. */
const ANSWER_MS = 5_000;
const NOT_WANTED = "its group is excluded, or it is not among the only resources to migrate";

/**
 * Asks every API server how it stores each resource that has no CRD.
 *
 * @param isCrd whether a resource has a CRD, or had one a moment ago
 * @param isWanted whether a user wants it looked after
 * @throws {ApiServerMissing} where an API server cannot be asked; {ApiError} where discovery cannot be read
 */
export async function observeBuiltIns(
  client: Client,
  apiServers: ApiServerOptions,
  { isCrd, isWanted }: { readonly isCrd: (name: string) => boolean; readonly isWanted: (name: string) => boolean },
  signal: AbortSignal,
): Promise<BuiltIns> {
  const { unread, versions: discovered } = await readVersions(client, { signal, timeoutMs: ANSWER_MS });
  const unavailable = unread.map((one) => ({
    group: one.group,
    groupVersion: apiVersion(one),
    reason: one.reason,
  }));
  const hidden = new Set(unavailable.map(({ group }) => group));
  const { migratable, skipped } = selectMigratable(discovered.filter(({ group }) => !hidden.has(group)));
  const builtIn = migratable
    .map((resource) => ({ ...resource, name: resourceNameOf(resource) }))
    .filter(({ name }) => !isCrd(name));
  const wanted = builtIn.filter(({ name }) => isWanted(name));
  const unwanted = builtIn
    .filter(({ name }) => !isWanted(name))
    .map(({ name }) => ({ resource: name, reason: NOT_WANTED }));
  const served = new Set(
    discovered.flatMap(({ group, resources }) =>
      resources.map(({ name }) => resourceNameOf({ group, resource: name })),
    ),
  );
  return {
    observed: await observe(client, apiServers, wanted, signal),
    leftOut: [...skipped, ...unwanted],
    unavailable,
    isGone: (name) => !served.has(name) && !isCrd(name) && !hidden.has(name.split(".").slice(1).join(".")),
  };
}

async function observe(
  client: Client,
  apiServers: ApiServerOptions,
  resources: readonly Pick<Observed, "name" | "group" | "version" | "resource">[],
  signal: AbortSignal,
): Promise<readonly Observed[]> {
  if (resources.length === 0) return [];
  const versions = new Map(resources.map((resource) => [apiVersion(resource), resource]));
  const { agreed, answers, disagreements } = await agreement(client, apiServers, [...versions.values()], signal);
  return resources.flatMap(({ group, name, resource, version }): readonly Observed[] => {
    const base = { name, group, version, resource };
    const { hash = "" } = agreed.get(name) ?? {};
    if (hash !== "") return [{ ...base, hashes: [hash], agreed: hash }];
    const disagreement = disagreements.get(name);
    if (disagreement === undefined) return [];
    const shown = answers.answers.flatMap(({ answer }) => answer.get(name) ?? []);
    const hashes = new Set(shown.map((one) => one.hash || UNKNOWN_HASH));
    // All of them show the same hash. A StorageVersion says that one writes another version.
    if (hashes.size === 1 && shown.length === answers.answers.length) hashes.add(UNKNOWN_HASH);
    return [{ ...base, hashes: [...hashes], disagreement }];
  });
}
