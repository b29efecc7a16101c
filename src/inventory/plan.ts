import { withoutUndefined } from "../api/json-fields.ts";
import { HEARTBEAT_LIMIT_MS, resourceNameOf } from "../api/migration.ts";
import { freezerOf } from "../freeze/freeze.ts";
import { CRD_FIELD_MANAGER } from "../freeze/rule.ts";
import type { Client } from "../kube/client.ts";
import { type Crd, CRDS, hasConversionWebhook, isClean, storageVersion } from "../kube/objects.ts";
import type { ServedResource } from "../resources/migratable.ts";
import { discoverMigratable, findResource } from "../resources/discover.ts";
import {
  readStorageStates,
  type StoredEncoding,
  storedEncodingOf,
  versionTextOf,
} from "../resources/storage-states.ts";
import { AT_ONCE, eachOf } from "../migrator/migrate-crd.ts";
import { crdProblem, pruneDoubt, storedVersionsOwner, unlistedVersions } from "../migrator/crd-state.ts";
import {
  ask,
  everyItem,
  type FieldVersions,
  findCrd,
  type FoundObjects,
  lookAtObjects,
  objectsOf,
} from "./inventory.ts";

/** One resource in a plan. Field names are those of `ksvm plan -o json`. */
export interface PlanEntry {
  readonly name: string;
  readonly kind: string;
  readonly type: "CustomResourceDefinition" | "built-in";
  /** Of a built-in resource what its storageVersionHash stands for, or the hash. */
  readonly storageVersion?: string;
  /** Of a built-in resource what its StorageState lists. */
  readonly storedVersions?: readonly string[];
  readonly servedVersions: readonly string[];
  /**
   * `migrate`: rewrite every object, of a CRD also prune storedVersions. `none`: nothing is stored otherwise, as far as
   * storedVersions or the StorageState say. `blocked`: a migration could not start. `unknown`: nothing tells in which
   * version built-in objects are stored.
   */
  readonly action: "migrate" | "none" | "blocked" | "unknown";
  /** The versions that could be removed from the CRD afterwards. */
  readonly removableVersions: readonly string[];
  /** What stands in the way, or what is not known, and why. */
  readonly note?: string;
  /** The command that helps with a state of the CRD that stops everything. */
  readonly help?: string;
  /** Of a CRD whose versions are converted by a webhook. */
  readonly conversion?: "Webhook";
  /** Missing where the objects cannot be listed. */
  readonly objects?: number;
  /** Objects that keep versions in the CRD: without those, a server-side apply of them would fail. */
  readonly managedFields?: FieldVersions;
}

/** What of a plan is wanted. */
export interface PlanSelection {
  /** Full names; each is shown once. @default every resource */
  readonly names?: readonly string[];
  /** Only what a migration has work with, or would have if it were not blocked. @default false */
  readonly stale?: boolean;
  /** Only CRDs, so that no built-in resource is looked for. @default false */
  readonly crdsOnly?: boolean;
  /** Told of versions that cannot be read, as where an aggregated API server does not answer. */
  readonly onUnavailable: (groupVersion: string, reason: string) => void;
}

/**
 * Plans, CRDs first, and counts the objects.
 * @throws {KsvmError} ResourceNotFound, ResourceNotMigratable for a name; {ApiError}
 */
export async function readPlan(
  client: Client,
  selection: PlanSelection,
  signal: AbortSignal,
): Promise<readonly PlanEntry[]> {
  const { crdsOnly = false, stale = false } = selection;
  const selected = (await readEntries(client, selection, signal)).filter(
    (entry) => (!stale || isStale(entry)) && (!crdsOnly || entry.type === "CustomResourceDefinition"),
  );
  return eachOf(selected, AT_ONCE, async (entry) => {
    const { conversion, name, servedVersions: versions, storageVersion: storage } = entry;
    const [plural = "", ...group] = name.split(".");
    const listed = { group: group.join("."), plural, versions, hasWebhook: conversion !== undefined };
    const isAsked = mayFieldsKeepVersions(entry) ? (version: string) => version !== storage : undefined;
    return withObjects(entry, await lookAtObjects(client, listed, signal, isAsked));
  });
}

/** Whether objects may be stored in another version than they are to be. Nothing is known of `unknown`. */
export function isStale({ action }: PlanEntry): boolean {
  return action === "migrate" || action === "blocked";
}

/** What is wanted of the cluster, without counts. */
export async function readEntries(
  client: Client,
  { crdsOnly = false, names, onUnavailable }: PlanSelection,
  signal: AbortSignal,
): Promise<readonly PlanEntry[]> {
  const entries = new Map<string, PlanEntry>();
  const builtIns: ServedResource[] = [];
  for (const name of names ?? []) {
    const crd = await findCrd(client, name, signal);
    if (crd === undefined) builtIns.push(await findResource(client, name, signal));
    else entries.set(name, planCrd(crd));
  }
  if (names === undefined) {
    for await (const crd of everyItem<Crd>(client, CRDS, signal)) entries.set(crd.metadata.name, planCrd(crd));
  }
  if (names === undefined && !crdsOnly) {
    const { migratable, unread } = await discoverMigratable(client, signal);
    for (const { reason, resource } of unread) onUnavailable(resource, reason);
    builtIns.push(...migratable.filter((resource) => !entries.has(resourceNameOf(resource))));
  }
  if (builtIns.length === 0) return [...entries.values()];
  const states = await ask(client, () => readStorageStates(client, signal), signal);
  // The heartbeats are of a replica in the cluster: the clock of this machine may be another one.
  const { date } = await ask(client, () => client.request("GET", "/version", { signal }), signal);
  const by = { now: date ?? client.clock.now(), heartbeatLimitMs: HEARTBEAT_LIMIT_MS };
  for (const resource of builtIns) {
    const name = resourceNameOf(resource);
    const stored = states && storedEncodingOf(states.get(name), { ...by, hash: resource.storageVersionHash });
    entries.set(name, planBuiltIn(resource, stored));
  }
  return [...entries.values()];
}

/** What a migration of this CRD would do. */
export function planCrd(crd: Crd): PlanEntry {
  const { metadata, spec, status } = crd;
  const storage = storageVersion(crd);
  const doubt = pruneDoubt(crd);
  const owner = storedVersionsOwner(crd);
  const unlisted = unlistedVersions(crd);
  const isPrunedByOther =
    doubt === undefined && owner !== undefined && owner !== CRD_FIELD_MANAGER && unlisted.length > 0;
  const problem = crdProblem(crd);
  const freezer = freezerOf(metadata);
  const isStopped = problem !== undefined || freezer === "other";
  const run = freezer === "other" ? "another owner" : `${freezer?.identity} since ${freezer?.since}`;
  const command = `run ksvm migrate ${metadata.name} --force`;
  const foreign = `${owner} wrote storedVersions, which lacks ${unlisted.join(", ")}: before you remove that, ${command}`;
  const remedy = doubt && `${doubt}; to rewrite them, ${command}`;
  return withoutUndefined<PlanEntry>({
    name: metadata.name,
    kind: spec.names.kind,
    type: "CustomResourceDefinition",
    storageVersion: storage,
    storedVersions: status?.storedVersions ?? [],
    servedVersions: objectsOf(crd).versions,
    action: isClean(crd) && doubt === undefined ? "none" : isStopped ? "blocked" : "migrate",
    removableVersions:
      isStopped || isPrunedByOther ? [] : spec.versions.map(({ name }) => name).filter((one) => one !== storage),
    note: joined(problem?.reason ?? (freezer && `frozen by ${run}`), isPrunedByOther ? foreign : remedy),
    help: problem?.help,
    conversion: hasConversionWebhook(crd) ? "Webhook" : undefined,
  });
}

const BUILT_IN_ACTIONS = { current: "none", stale: "migrate", unknown: "unknown" } as const;

/**
 * What a migration of this built-in resource would do.
 * @param stored what its StorageState says; missing where there are no StorageStates
 */
export function planBuiltIn(resource: ServedResource, stored?: StoredEncoding): PlanEntry {
  const { kind, storageVersionHash: hash, version } = resource;
  const { persisted, reason, state = "unknown" } = stored ?? {};
  return withoutUndefined<PlanEntry>({
    name: resourceNameOf(resource),
    kind,
    type: "built-in",
    storageVersion: hash === undefined ? undefined : versionTextOf(hash, resource),
    storedVersions: persisted?.map((one) => versionTextOf(one, resource)),
    servedVersions: [version],
    action: BUILT_IN_ACTIONS[state],
    removableVersions: [],
    note: reason,
  });
}

/**
 * Whether managedFields may keep a version in the CRD. A migration names the storage version in them, but not where a
 * webhook converts, since only that knows which field is which.
 */
function mayFieldsKeepVersions({ action, conversion, removableVersions }: PlanEntry): boolean {
  return removableVersions.length > 0 && (action !== "migrate" || conversion !== undefined);
}

/** The entry with what its objects show. */
export function withObjects(entry: PlanEntry, found: FoundObjects): PlanEntry {
  const { conversionProblem, count, fieldVersions, isPartial = false, problem } = found;
  const managedFields = mayFieldsKeepVersions(entry) ? fieldVersions : undefined;
  // A list that fails for it says the same.
  const conversion = conversionProblem && `its conversion webhook cannot be called: ${conversionProblem}`;
  const isKept = (version: string): boolean => isPartial || managedFields?.versions.includes(version) === true;
  return withoutUndefined<PlanEntry>({
    ...entry,
    removableVersions: entry.removableVersions.filter((version) => !isKept(version)),
    note: joined(
      entry.note,
      isPartial
        ? "of so many objects only the first ones were looked at: remove versions by ksvm migrate -f FILE --apply"
        : undefined,
      problem === undefined ? conversion : `objects cannot be listed: ${problem}`,
    ),
    objects: count,
    managedFields,
  });
}

function joined(...texts: readonly (string | undefined)[]): string | undefined {
  return texts.filter((text) => text !== undefined).join("; ") || undefined;
}
