import { type ApiService, apiServiceNameOf, isAggregated } from "../api/api-service.ts";
import { resourceNameOf } from "../api/migration.ts";
import { discover } from "../apiservers/converge.ts";
import { KsvmError } from "../errors.ts";
import { everyItem } from "../inventory/inventory.ts";
import type { Client } from "../kube/client.ts";
import { ApiError } from "../kube/errors.ts";
import { apiVersion, CRDS, METADATA_LIST } from "../kube/objects.ts";
import { pauseAfter, retry } from "../kube/retry.ts";
import {
  type DiscoveredVersion,
  type GroupVersion,
  missingVerbs,
  type Selection,
  selectMigratable,
  servedResource,
  type ServedResource,
  type SkippedResource,
} from "./migratable.ts";

const API_SERVICES = "/apis/apiregistration.k8s.io/v1/apiservices";
/**
 * Milliseconds for what cannot be read, all together. An API server that has just started, or whose watch caches are
 * being filled, answers 429 and 503 for some seconds.
 */
const PATIENCE_MS = 30_000;
/** Milliseconds for one answer: an aggregated API server that hangs holds up no other. */
const ANSWER_MS = 10_000;

/** Every resource whose objects are in etcd. */
export interface StoredResources {
  /** `plural.group` each, the plural alone in the core group. */
  readonly names: readonly string[];
  /** The same; without a version where discovery shows none. */
  readonly resources: readonly Pick<ServedResource, "group" | "version" | "resource">[];
  /**
   * What is left out although it may be stored, with the reason: aggregated API servers have a storage of their own.
   */
  readonly leftOut: readonly SkippedResource[];
  /** The same, and what has no objects in etcd. */
  readonly skipped: readonly SkippedResource[];
  /** Versions of groups that could not be read: resources of theirs may be missing. */
  readonly unread: readonly SkippedResource[];
}

/**
 * Every resource that is stored: what discovery shows, and every CRD: the API server gives no storageVersionHash for
 * one whose storage version is not served.
 * @throws {ApiError}
 */
export async function storedResources(client: Client, signal: AbortSignal): Promise<StoredResources> {
  const crds: string[] = [];
  for await (const crd of everyItem(client, CRDS, signal, METADATA_LIST)) crds.push(crd.metadata.name);
  const services = await retry(client, () => client.list<ApiService>(API_SERVICES, { signal }), { signal });
  const aggregated = new Set(services.items.filter(isAggregated).map((service) => service.metadata.name));
  const { migratable, skipped, unread } = await discoverMigratable(client, signal);

  const isAggregatedOne = ({ group, version }: GroupVersion): boolean =>
    aggregated.has(apiServiceNameOf(group, version));
  const own = migratable.filter((one) => !isAggregatedOne(one));
  const ownNames = new Set(own.map(resourceNameOf));
  // A CRD counts even if an aggregated API server serves its group: its objects are in etcd, and its run says why it
  // cannot rewrite them.
  const resources = [...own, ...crds.filter((name) => !ownNames.has(name)).map(resourceOfCrd)];
  const names = resources.map(resourceNameOf);
  const reason = "an aggregated API server stores it, and encrypts it by a configuration of its own";
  const others = migratable.filter(isAggregatedOne).map((one) => ({ resource: resourceNameOf(one), reason }));
  const isLeftOut = ({ resource }: SkippedResource): boolean => !names.includes(resource);
  const left = skipped.filter(isLeftOut);
  const leftOut = [...others.filter(isLeftOut), ...left.filter(({ mayBeStored = false }) => mayBeStored)];
  return { names, resources, leftOut, skipped: [...left, ...others.filter(isLeftOut)], unread };
}

/** The version is a hint that another one may take the place of. */
function resourceOfCrd(name: string): Pick<ServedResource, "group" | "version" | "resource"> {
  const [resource = "", ...group] = name.split(".");
  return { group: group.join("."), version: "", resource };
}

/** What discovery shows. */
export interface Discovery extends Selection {
  /** Versions of groups that could not be read and may have resources to migrate, as `*.group/version`. */
  readonly unread: readonly SkippedResource[];
}

/**
 * Every resource of the cluster that can be migrated, and those that are left out. What cannot be read of the groups
 * keeps no other from being migrated.
 * @throws {ApiError} where the groups cannot be listed
 */
export async function discoverMigratable(client: Client, signal: AbortSignal): Promise<Discovery> {
  const { unread, versions } = await readVersions(client, { forMs: PATIENCE_MS, signal });
  const { migratable, skipped } = selectMigratable(versions);
  const down = unread.filter(({ isDown }) => isDown).map(leftOutVersion);
  const others = unread.filter(({ isDown }) => !isDown).map(leftOutVersion);
  return { migratable, skipped: [...down, ...skipped], unread: others };
}

function leftOutVersion({ group, isDown, reason, version }: UnreadVersion): SkippedResource {
  const why = isDown ? "its API server does not answer discovery" : "discovery cannot be read";
  return { resource: `*.${apiVersion({ group, version })}`, reason: `${why}: ${reason}`, group, mayBeStored: true };
}

/**
 * Finds a resource by its full name, in the first version that is listed.
 * @throws {KsvmError} ResourceNotFound where discovery does not list it; ResourceNotMigratable where it cannot be
 *   listed and patched; {ApiError}
 */
export async function findResource(client: Client, name: string, signal: AbortSignal): Promise<ServedResource> {
  const [plural = "", ...rest] = name.split(".");
  const { unread, versions } = await readVersions(client, { forMs: PATIENCE_MS, group: rest.join("."), signal });
  for (const version of versions) {
    const entry = version.resources.find((one) => one.name === plural);
    if (entry === undefined) continue;
    const missing = missingVerbs(entry);
    if (missing.length === 0) return servedResource(version, entry);
    const text = `Cannot migrate "${name}": the API server does not offer ${missing.join(" and ")} for it`;
    throw new KsvmError("ResourceNotMigratable", text);
  }
  const [failed] = unread;
  if (failed !== undefined) {
    const text = `Cannot find "${name}": discovery of ${apiVersion(failed)} cannot be read: ${failed.reason}`;
    throw new KsvmError("ApiRequestFailed", text);
  }
  throw new KsvmError("ResourceNotFound", `Cannot find "${name}": ${EXPECTED_NAME}`);
}

/** What a name is to be, for messages. */
export const EXPECTED_NAME =
  "expected the name of a CustomResourceDefinition (plural.group) or of a built-in resource, such as " +
  '"widgets.example.com", "deployments.apps" or "secrets"';

/** A version of a group that cannot be read. */
export interface UnreadVersion extends GroupVersion {
  readonly reason: string;
  /** Whether the cluster itself says that the API server behind an APIService is not available. */
  readonly isDown: boolean;
}

/**
 * Reads what the API server serves, the preferred version of each group first.
 *
 * @param options.forMs milliseconds for which what cannot be read is asked for again. A group whose APIService is not
 *   available is not waited for. @default it is asked for once, and `isDown` is not found out
 * @param options.group only this one. @default all groups
 * @param options.timeoutMs milliseconds for one answer
 * @throws {ApiError} where the groups cannot be listed
 */
export async function readVersions(
  client: Client,
  {
    forMs = 0,
    group,
    signal,
    timeoutMs = ANSWER_MS,
  }: {
    readonly forMs?: number;
    readonly group?: string;
    readonly signal: AbortSignal;
    readonly timeoutMs?: number;
  },
): Promise<{ readonly versions: readonly DiscoveredVersion[]; readonly unread: readonly UnreadVersion[] }> {
  const { clock } = client;
  const all = await retry(client, () => listedVersions(client, signal), { signal });
  const listed = group === undefined ? all : all.filter((one) => one.group === group);
  const found = new Map<GroupVersion, DiscoveredVersion>();
  const deadline = clock.monotonic() + forMs;
  for (let attempt = 0; ; attempt++) {
    const unread: UnreadVersion[] = [];
    let failure: unknown;
    for (const version of listed.filter((one) => !found.has(one))) {
      try {
        found.set(version, { ...version, resources: await discover(client, version, { signal, timeoutMs }) });
      } catch (error) {
        signal.throwIfAborted();
        if (!(error instanceof ApiError)) throw error;
        failure = error;
        const isDown = forMs > 0 && (await isKnownDown(client, version, signal));
        unread.push({ ...version, reason: error.said, isDown });
      }
    }
    const leftMs = deadline - clock.monotonic();
    if (leftMs <= 0 || unread.every(({ isDown }) => isDown)) {
      return { versions: listed.flatMap((one) => found.get(one) ?? []), unread };
    }
    await clock.sleep(Math.min(leftMs, pauseAfter(failure, attempt, client.random())), signal);
  }
}

/** An API server behind an APIService may be down for weeks: that must not fail the initializer each time. */
async function isKnownDown(client: Client, { group, version }: GroupVersion, signal: AbortSignal): Promise<boolean> {
  try {
    const service = await client.find<ApiService>(`${API_SERVICES}/${apiServiceNameOf(group, version)}`, { signal });
    const conditions = service?.status?.conditions ?? [];
    return isAggregated(service) && !conditions.some(({ status, type }) => type === "Available" && status === "True");
  } catch (error) {
    signal.throwIfAborted();
    if (error instanceof ApiError) return false;
    throw error;
  }
}

/** An entry of `/apis`. */
interface ApiGroup {
  readonly name: string;
  readonly preferredVersion: { readonly version: string };
  readonly versions: readonly { readonly version: string }[];
}

/** Every version that the API server lists, the preferred one of each group first, the core group before all. */
async function listedVersions(client: Client, signal: AbortSignal): Promise<readonly GroupVersion[]> {
  const { groups } = await client.get<{ readonly groups: readonly ApiGroup[] }>("/apis", { signal });
  const named = groups.flatMap(({ name: group, preferredVersion, versions }) => {
    const names = new Set([preferredVersion, ...versions].map(({ version }) => version));
    return [...names].map((version) => ({ group, version }));
  });
  return [{ group: "", version: "v1" }, ...named];
}
