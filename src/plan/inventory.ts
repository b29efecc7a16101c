import type { CustomResourceDefinition } from "../api/crd.ts";
import { HEARTBEAT_LIMIT_MS, resourceNameOf } from "../api/migration.ts";
import { systemClock } from "../clock.ts";
import { messageOf } from "../errors.ts";
import type { CallOptions } from "../old/kube/call-options.ts";
import type { ApiClient } from "../old/kube/client.ts";
import { ApiError } from "../old/kube/errors.ts";
import { projectedPages } from "../old/kube/list-projected.ts";
import { CRDS, type Resource } from "../old/kube/resources.ts";
import type { ServedResource } from "../resources/migratable.ts";
import { discoverResources, findResource } from "../resources/served-resource.ts";
import { mapInFlight } from "../old/retry/map-in-flight.ts";
import { findName } from "../resources/find-name.ts";
import { findCrd } from "../resources/crds.ts";
import { conversionProblemOf, isWebhookDown } from "./conversion-problem.ts";
import { type Estimate, estimateOf } from "./estimate.ts";
import { isSchemaDue, PLAN_FIELDS, type PlanEntry, planBuiltIn, planCrd } from "./plan.ts";
import { readStorageStates, storedEncodingOf } from "../resources/storage-states.ts";

/** A plan entry with the number of objects, as far as it can be told. */
export interface CountedEntry extends PlanEntry {
  /** Missing where the objects cannot be listed; the note says why. */
  readonly objects?: number;
  /** What migrating them takes; missing where there is nothing to migrate, or they cannot be counted. */
  readonly estimate?: Estimate;
  /**
   * What an API server says of the conversion webhook, where it could not call it; missing where nothing is to be
   * migrated.
   */
  readonly conversionProblem?: string;
}

/** CRDs on one page: they may be a megabyte each. */
const CRD_PAGE_SIZE = 40;
const COUNTS_IN_FLIGHT = 8;

/** What of a plan is wanted. */
export interface PlanSelection {
  /** Only what a migration has work with, or would have if it were not blocked. @default false */
  readonly stale?: boolean;
  /** Only CRDs, so that no built-in resource is looked for. @default false */
  readonly crdsOnly?: boolean;
}

function isSelected({ action, type }: PlanEntry, { crdsOnly = false, stale = false }: PlanSelection): boolean {
  return (!stale || isStale(action)) && (!crdsOnly || type === "CustomResourceDefinition");
}

/** Whether objects may be stored in another version than they are to be. Nothing is known of `unknown`. */
export function isStale(action: PlanEntry["action"]): boolean {
  return action === "migrate" || action === "blocked";
}

/**
 * Plans for the named resources, once for each, whichever of its names are given.
 * @throws {KsvmError} ResourceNotFound or ResourceAmbiguous, see {@link findName}.
 */
export async function planNamed(
  client: ApiClient,
  names: readonly string[],
  options: CallOptions & PlanSelection = {},
): Promise<readonly CountedEntry[]> {
  const entries = new Map<string, PlanEntry>();
  const { plan } = await builtInPlanner(client, options);
  for (const given of new Set(names)) {
    const name = await findName(client, given, options);
    const crd = await findCrd(client, name, options);
    const entry = crd === undefined ? plan(await findResource(client, name, options)) : planCrd(crd);
    entries.set(entry.name, entry);
  }
  return countAll(
    client,
    [...entries.values()].filter((entry) => isSelected(entry, options)),
    options,
  );
}

/**
 * Plans for every CRD and every built-in resource of the cluster, CRDs first.
 * @throws {ApiError}
 */
export async function planCluster(
  client: ApiClient,
  onUnavailable: (groupVersion: string, reason: string) => void,
  options: CallOptions & PlanSelection = {},
): Promise<readonly CountedEntry[]> {
  const entries =
    options.crdsOnly === true
      ? await planCrds(client, options)
      : (await planAll(client, onUnavailable, options)).entries;
  return countAll(
    client,
    entries.filter((entry) => isSelected(entry, options)),
    options,
  );
}

/** Plans for everything. */
export interface WholePlan {
  /** CRDs first. */
  readonly entries: readonly PlanEntry[];
  /** Whether there are StorageStates, which say how built-in resources are stored. */
  readonly hasStorageStates: boolean;
}

/**
 * As {@link planCluster}, without counting objects.
 * @throws {ApiError}
 */
export async function planAll(
  client: ApiClient,
  onUnavailable: (groupVersion: string, reason: string) => void,
  options: CallOptions = {},
): Promise<WholePlan> {
  const crds = await planCrds(client, options);
  const names = new Set(crds.map(({ name }) => name));
  const { plan, hasStorageStates } = await builtInPlanner(client, options);
  const resources = await discoverResources(client, onUnavailable, options);
  const builtIns = resources.filter((resource) => !names.has(resourceNameOf(resource))).map(plan);
  return { entries: [...crds, ...builtIns], hasStorageStates };
}

async function builtInPlanner(
  client: ApiClient,
  options: CallOptions,
): Promise<{ readonly hasStorageStates: boolean; readonly plan: (resource: ServedResource) => PlanEntry }> {
  const states = (await readStorageStates(client, options)) ?? new Map<string, never>();
  if (states.size === 0) {
    return { hasStorageStates: false, plan: (resource) => planBuiltIn(resource) };
  }
  // The heartbeats are of a replica in the cluster: the clock of this machine may be another one.
  const { serverTime } = await client.transport.request({ method: "GET", path: "/version", ...options });
  const judge = { now: serverTime ?? systemClock.now(), heartbeatLimitMs: HEARTBEAT_LIMIT_MS };
  const plan = (resource: ServedResource): PlanEntry => {
    const state = states.get(resourceNameOf(resource));
    return planBuiltIn(resource, storedEncodingOf(state, { ...judge, hash: resource.storageVersionHash }));
  };
  return { hasStorageStates: true, plan };
}

async function planCrds(client: ApiClient, options: CallOptions): Promise<readonly PlanEntry[]> {
  const entries: PlanEntry[] = [];
  const list = { limit: CRD_PAGE_SIZE, projection: PLAN_FIELDS, ...options };
  for await (const { items } of projectedPages(client.transport, CRDS, list)) {
    for (const item of items) {
      const crd = item as CustomResourceDefinition;
      const whole = isSchemaDue(crd) ? await findCrd(client, crd.metadata.name, options) : undefined;
      entries.push(planCrd(whole ?? crd));
    }
  }
  return entries.toSorted((a, b) => a.name.localeCompare(b.name));
}

async function countAll(
  client: ApiClient,
  entries: readonly PlanEntry[],
  options: CallOptions & PlanSelection,
): Promise<readonly CountedEntry[]> {
  const { signal } = options;
  return mapInFlight(entries, (entry) => count(client, entry, options), { most: COUNTS_IN_FLIGHT, signal });
}

async function count(client: ApiClient, entry: PlanEntry, { signal }: CallOptions): Promise<CountedEntry> {
  if (entry.request === undefined) {
    return entry;
  }
  try {
    const objects = await countObjects(client, entry.request, { signal });
    const problem = await conversionProblemOf(client, entry, { signal });
    return {
      ...entry,
      objects,
      ...(entry.action === "migrate" ? { estimate: estimateOf(objects) } : {}),
      ...(problem === undefined ? {} : { conversionProblem: problem }),
    };
  } catch (error) {
    if (!(error instanceof ApiError)) {
      throw error;
    }
    return unlisted(entry, error);
  }
}

function unlisted(entry: PlanEntry, error: ApiError): CountedEntry {
  const note = `objects cannot be listed: ${messageOf(error.said)}`;
  const failed = { ...entry, note: entry.note === undefined ? note : `${entry.note}; ${note}` };
  return isWebhookDown(error, entry) ? { ...failed, conversionProblem: messageOf(error.said) } : failed;
}

/**
 * How many objects a resource has, from a page of one.
 * @throws {ApiError}
 */
export async function countObjects(client: ApiClient, resource: Resource, options: CallOptions = {}): Promise<number> {
  const { items, metadata } = await client.listMetadata(resource, { limit: 1, ...options });
  return items.length + (metadata.remainingItemCount ?? 0);
}
