import { withoutUndefined } from "../api/json-fields.ts";
import { HEARTBEAT_LIMIT_MS, resourceNameOf } from "../api/migration.ts";
import { epochOf } from "../apiservers/converge.ts";
import { DEFAULT_SETTLE_MS } from "../apiservers/settle.ts";
import { freezerOf } from "../freeze/freeze.ts";
import { notInStoredVersions, pruneDoubtOf } from "../in-tree/prune-doubt.ts";
import type { Client } from "../kube/client.ts";
import { type Crd, hasConversionWebhook, isClean, storageVersion } from "../kube/objects.ts";
import type { ServedResource } from "../resources/migratable.ts";
import { discoverMigratable, findResource } from "../resources/discover.ts";
import { type StoredEncoding, storedEncodingOf, versionTextOf } from "../resources/storage-states.ts";
import { crdProblem } from "./crd-state.ts";
import {
  everyCrd,
  type FieldVersions,
  findCrd,
  forEach,
  type FoundObjects,
  lookAtObjects,
  readStorageStates,
} from "./inventory.ts";

/** One resource in a plan. Field names are those of `ksvm plan -o json`. */
export interface PlanEntry {
  readonly name: string;
  readonly kind: string;
  readonly type: "CustomResourceDefinition" | "built-in";
  /** Where its objects are listed; missing where no version is served. */
  readonly request?: { readonly group: string; readonly version: string; readonly resource: string };
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
  /** Of a CRD: why objects may be stored in versions that storedVersions lacks. */
  readonly pruneDoubt?: string;
  /** Of a CRD: its `uid/generation`, as `status.crd` of a migration has it. */
  readonly crd?: string;
  /** Of a CRD whose versions are converted by a webhook. */
  readonly conversion?: "Webhook";
  /** Missing where the objects cannot be listed. */
  readonly objects?: number;
  /** What migrating them takes. */
  readonly estimate?: Estimate;
  /** What the API server says where it cannot call the conversion webhook that a migration needs. */
  readonly conversionProblem?: string;
  /** Objects that keep versions in the CRD: without those, a server-side apply of them would fail. */
  readonly managedFields?: FieldVersions;
}

/** What migrating so many objects takes, roughly. Field names are those of `-o json`. */
export interface Estimate {
  /** One write for each object, and the pages that list them. */
  readonly requests: number;
  /** With the default settings, on an API server that is not busy. */
  readonly seconds: number;
}

/** Objects on a page, where their metadata has some two kilobytes. */
const PAGE_OBJECTS = 500;
/** Objects rewritten in a second: what a small API server does for a run that leaves room for other clients. */
const OBJECTS_PER_SECOND = 200;
/** The freeze, its proof on every API server, and the prune; on top of the wait for late writes. */
const FIXED_SECONDS = 10;

/** Estimates the migration of so many objects. */
export function estimateOf(objects: number): Estimate {
  return {
    requests: objects + Math.max(1, Math.ceil(objects / PAGE_OBJECTS)),
    seconds: Math.ceil(DEFAULT_SETTLE_MS / 1_000 + FIXED_SECONDS + objects / OBJECTS_PER_SECOND),
  };
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
  const { entries } = await readEntries(client, selection, signal);
  const selected = entries.filter(
    (entry) =>
      (selection.stale !== true || isStale(entry)) &&
      (selection.crdsOnly !== true || entry.type === "CustomResourceDefinition"),
  );
  return forEach(selected, async (entry) => {
    const { request, servedVersions, storageVersion: storage } = entry;
    if (request === undefined) return entry;
    const { group, resource: plural, version } = request;
    const versions = [version, ...servedVersions.filter((other) => other !== version)];
    const hasWebhook = entry.conversion !== undefined && entry.action !== "none";
    const isAsked = isFieldsDue(entry) ? (named: string) => named !== storage : undefined;
    return withObjects(entry, await lookAtObjects(client, { group, plural, versions, hasWebhook }, signal, isAsked));
  });
}

/** Whether objects may be stored in another version than they are to be. Nothing is known of `unknown`. */
export function isStale({ action }: PlanEntry): boolean {
  return action === "migrate" || action === "blocked";
}

/** The same without counts; and whether there are StorageStates, which say how built-in resources are stored. */
export async function readEntries(
  client: Client,
  { crdsOnly = false, names, onUnavailable }: PlanSelection,
  signal: AbortSignal,
): Promise<{ readonly entries: readonly PlanEntry[]; readonly hasStorageStates: boolean }> {
  const crds = new Map<string, PlanEntry>();
  if (names === undefined) {
    for await (const crd of everyCrd(client, signal)) crds.set(crd.metadata.name, planCrd(crd));
    const entries = [...crds.values()].toSorted((a, b) => a.name.localeCompare(b.name));
    if (crdsOnly) return { entries, hasStorageStates: false };
    const { migratable, unread } = await discoverMigratable(client, signal);
    for (const { reason, resource } of unread) onUnavailable(resource, reason);
    const builtIns = migratable.filter((resource) => !crds.has(resourceNameOf(resource)));
    const judged = await judge(client, builtIns, signal);
    return { ...judged, entries: [...entries, ...judged.entries] };
  }
  const builtIns: ServedResource[] = [];
  for (const name of names) {
    const crd = await findCrd(client, name, signal);
    if (crd === undefined) builtIns.push(await findResource(client, name, signal));
    else crds.set(name, planCrd(crd));
  }
  const judged = await judge(client, builtIns, signal);
  const all = new Map([...crds.values(), ...judged.entries].map((entry) => [entry.name, entry]));
  return { ...judged, entries: [...new Set(names)].flatMap((name) => all.get(name) ?? []) };
}

/** How built-in resources are stored, by their StorageStates. */
async function judge(
  client: Client,
  builtIns: readonly ServedResource[],
  signal: AbortSignal,
): Promise<{ readonly entries: readonly PlanEntry[]; readonly hasStorageStates: boolean }> {
  const states = builtIns.length === 0 ? new Map<string, never>() : await readStorageStates(client, signal);
  if (states.size === 0) return { entries: builtIns.map((one) => planBuiltIn(one)), hasStorageStates: false };
  // The heartbeats are of a replica in the cluster: the clock of this machine may be another one.
  const { date } = await client.request("GET", "/version", { signal });
  const by = { now: date ?? client.clock.now(), heartbeatLimitMs: HEARTBEAT_LIMIT_MS };
  const entries = builtIns.map((resource) => {
    const state = states.get(resourceNameOf(resource));
    return planBuiltIn(resource, storedEncodingOf(state, { ...by, hash: resource.storageVersionHash }));
  });
  return { entries, hasStorageStates: true };
}

/** What a migration of this CRD would do. */
export function planCrd(crd: Crd): PlanEntry {
  const { metadata, spec, status } = crd;
  const storage = storageVersion(crd);
  const served = spec.versions.flatMap((version) => (version.served ? [version.name] : []));
  const version = served.includes(storage) ? storage : served[0];
  const pruneDoubt = pruneDoubtText(crd);
  const problem = crdProblem(crd);
  const freezer = freezerOf(metadata);
  const isStopped = problem !== undefined || freezer === "other";
  const isDone = isClean(crd) && pruneDoubt === undefined;
  return withoutUndefined<PlanEntry>({
    name: metadata.name,
    kind: spec.names.kind,
    type: "CustomResourceDefinition",
    request: version === undefined ? undefined : { group: spec.group, version, resource: spec.names.plural },
    storageVersion: storage,
    storedVersions: status?.storedVersions ?? [],
    servedVersions: served,
    action: isDone ? "none" : isStopped ? "blocked" : "migrate",
    removableVersions: isStopped ? [] : spec.versions.flatMap(({ name }) => (name === storage ? [] : [name])),
    note: problem?.reason ?? noteOfFreeze(freezer),
    help: problem?.help,
    pruneDoubt,
    crd: epochOf(crd),
    conversion: hasConversionWebhook(crd) ? "Webhook" : undefined,
  });
}

function noteOfFreeze(freezer: ReturnType<typeof freezerOf>): string | undefined {
  if (freezer === "other") return "frozen by another owner";
  return freezer && `frozen by ${freezer.identity} since ${freezer.since}`;
}

/**
 * Why objects may be stored in versions that storedVersions lacks, and what helps; `undefined` where nothing speaks for
 * it.
 */
export function pruneDoubtText(
  crd: Parameters<typeof pruneDoubtOf>[0] & { readonly metadata: { readonly name: string } },
): string | undefined {
  const doubt = pruneDoubtOf(crd);
  return (
    doubt &&
    `objects may be stored in ${notInStoredVersions(crd).join(", ")}, which storedVersions lacks: ${doubt}; ` +
      `to rewrite them, run ksvm doctor ${crd.metadata.name} --repair`
  );
}

const BUILT_IN_ACTIONS = { current: "none", stale: "migrate", unknown: "unknown" } as const;

/**
 * What a migration of this built-in resource would do.
 * @param stored what its StorageState says; missing where there are no StorageStates
 */
export function planBuiltIn(resource: ServedResource, stored?: StoredEncoding): PlanEntry {
  const { group, kind, resource: plural, storageVersionHash: hash, version } = resource;
  const { persisted, reason, state = "unknown" } = stored ?? {};
  return withoutUndefined<PlanEntry>({
    name: resourceNameOf(resource),
    kind,
    type: "built-in",
    request: { group, version, resource: plural },
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
function isFieldsDue({ action, conversion, removableVersions }: PlanEntry): boolean {
  return removableVersions.length > 0 && (action !== "migrate" || conversion !== undefined);
}

/** The entry with what its objects show. */
export function withObjects(entry: PlanEntry, found: FoundObjects): PlanEntry {
  const { conversionProblem, count, fieldVersions, problem } = found;
  const unlisted = problem === undefined ? undefined : `objects cannot be listed: ${problem}`;
  const note = [entry.note, unlisted].filter((text) => text !== undefined).join("; ");
  const named = isFieldsDue(entry) ? fieldVersions : undefined;
  return withoutUndefined<PlanEntry>({
    ...entry,
    removableVersions: entry.removableVersions.filter((version) => named?.versions.includes(version) !== true),
    note: note === "" ? undefined : note,
    objects: count,
    estimate: count === undefined || entry.action !== "migrate" ? undefined : estimateOf(count),
    conversionProblem,
    managedFields: named,
  });
}
