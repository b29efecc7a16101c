import { withoutUndefined } from "../api/json-fields.ts";
import {
  CONTROLLER_LEASE,
  MIGRATION_STATES,
  type MigrationCounts,
  type MigrationFailure,
  type MigrationState,
  resourceNameOf,
  stateOf,
  type StorageVersionMigration,
  SYSTEM_NAMESPACE,
  UNKNOWN_HASH,
} from "../api/migration.ts";
import { MANAGED_BY, MANAGED_BY_LABEL } from "../api/names.ts";
import type { ReadStorageState } from "../api/parse-storage-state.ts";
import { parseMigration } from "../api/parse-migration.ts";
import { asksForReencryption } from "../api/reencryption.ts";
import { isStorageMigrating } from "../freeze/by-hand.ts";
import { freezerOf } from "../freeze/freeze.ts";
import { STORAGE_MIGRATING } from "../freeze/rule.ts";
import type { Client } from "../kube/client.ts";
import { unlessForbidden } from "../kube/errors.ts";
import { CRDS, type Crd, type Lease, LEASES, type ManagedFieldsEntry, type ObjectMeta } from "../kube/objects.ts";
import {
  type InTreeMigration,
  inTreeMigrations,
  inTreeResource,
  inTreeState,
  isInTreeUnfinished,
} from "../migrator/in-tree.ts";
import { DEFAULT_LEASE_NAMESPACE, leaseName } from "../migrator/run-lease.ts";
import { hashTextOf } from "../resources/storage-states.ts";
import { ask, everyCrdMetadata, everyItem, forEach, readStorageStates } from "./inventory.ts";

/** What is going on in a cluster. Field names, here and below, are those of `ksvm status -o json`. */
export interface ClusterStatus {
  readonly controller: ControllerLine;
  readonly migrations: readonly MigrationLine[];
  /** Runs that hold a Lease, or left a checkpoint there. */
  readonly runs: readonly RunLine[];
  readonly freezes: readonly FreezeLine[];
  /** Resources of which not everything is stored alike. */
  readonly storage?: readonly StorageLine[];
  /** Migrations that cannot be read, so that no controller carries them out. */
  readonly leftOut?: readonly LeftOutLine[];
  /** What this user may not see, and why. */
  readonly unknown?: readonly string[];
}

/** A Lease and its holder. */
export interface LeaseLine {
  /**
   * `alive`: renewed within its duration. `silent`: not, so its holder was killed, or cannot reach the API server.
   * `released`: it has no holder. `unknown`: renewed in the future, by the clock of the API server that answered.
   */
  readonly state: "alive" | "silent" | "released" | "unknown";
  /** `namespace/name`. */
  readonly lease: string;
  readonly holder?: string;
  /** The last sign of life, RFC 3339, by the clock of an API server where it is known. */
  readonly renewed?: string;
}

/** A run on one resource: of `ksvm migrate`, `reencrypt` or `doctor`, or of a controller. */
export interface RunLine extends LeaseLine {
  readonly resource: string;
}

/** Whether a controller leads: its Lease, or why there is none to show. */
export type ControllerLine =
  | LeaseLine
  | { readonly state: "none" }
  | { readonly state: "unknown"; readonly reason: string };

/** One migration, by any migrator. */
export interface MigrationLine {
  readonly name: string;
  /** `plural.group`, the plural alone in the core group. */
  readonly resource: string;
  /** `in-tree` is Kubernetes' own migrator. */
  readonly controller: "ksvm" | "in-tree";
  /** Whether it re-encrypts, which says nothing of the storage version. */
  readonly reencrypts?: true;
  readonly state: MigrationState;
  /** "looked at of all". */
  readonly progress?: string;
  readonly counts?: MigrationCounts;
  readonly failures?: readonly MigrationFailure[];
  /** `uid/generation` of the CRD when ksvm had proven every object. */
  readonly crd?: string;
  /** Why it is in this state, in one word. */
  readonly reason?: string;
  /** The same, with what there is to say of it. */
  readonly message?: string;
  /** RFC 3339. */
  readonly created?: string;
  /** When it ended, RFC 3339. */
  readonly ended?: string;
}

/** One migration that cannot be read. */
export interface LeftOutLine {
  readonly name: string;
  readonly reason: string;
}

/** One mark that freezes the storage version of a CRD. */
export interface FreezeLine {
  readonly crd: string;
  /** Missing where it is our annotation. */
  readonly condition?: typeof STORAGE_MIGRATING;
  /** Missing where that is not known, or where another client wrote our annotation. */
  readonly owner?: string;
  /** `namespace/name` of the Lease that says whether its owner lives. */
  readonly lease?: string;
  /** RFC 3339. */
  readonly since?: string;
  /** The migration of Kubernetes' own migrator that explains the condition. */
  readonly migration?: string;
  /** No migration explains the condition, so that only `ksvm unfreeze` ends it. */
  readonly isStuck?: true;
}

/** A resource of which not everything is stored alike. */
export interface StorageLine {
  readonly resource: string;
  /** The hashes of the versions that objects may be stored in by its StorageState; `unknown` stands for any. */
  readonly storedVersions: readonly string[];
  /** The hash of what API servers store now; `unknown` where they do not agree. */
  readonly storageVersion: string;
  /** When the trigger looked last, RFC 3339. */
  readonly lookedAt?: string;
}

/**
 * Reads every migration, every run and every freeze. What this user may not see is named, beside migrations and CRDs.
 * @throws {ApiError}
 */
export async function readStatus(client: Client, signal: AbortSignal): Promise<ClusterStatus> {
  const unknown: string[] = [];
  const inTree = inTreeMigrations(client, signal);
  const [{ leftOut, lines }, inTreeFound, freezes, controller, runs, states] = await Promise.all([
    readMigrations(client, signal),
    inTree,
    readFreezes(client, inTree, signal),
    readController(client, signal),
    readRuns(client, unknown, signal),
    readStorageStates(client, signal),
  ]);
  if (inTreeFound === undefined) unknown.push("migrations of Kubernetes' own migrator: this user may not list them");
  const migrations = [...lines, ...(inTreeFound ?? []).map(inTreeLine)];
  const storage = [...states].flatMap(([resource, state]) => storageLine(resource, state));
  return {
    controller,
    // What is under way first.
    migrations: migrations.toSorted((a, b) => rank(a) - rank(b) || a.name.localeCompare(b.name)),
    runs,
    freezes,
    ...(storage.length === 0 ? {} : { storage: storage.toSorted((a, b) => a.resource.localeCompare(b.resource)) }),
    ...(leftOut.length === 0 ? {} : { leftOut }),
    ...(unknown.length === 0 ? {} : { unknown: unknown.toSorted() }),
  };
}

/** The part of a status that is about one resource or one migration. */
export function statusOf(status: ClusterStatus, name: string): ClusterStatus {
  const migrations = status.migrations.filter((line) => line.name === name || line.resource === name);
  const resources = new Set([name, ...migrations.map(({ resource }) => resource)]);
  const { leftOut: unread = [], storage: stored = [], ...rest } = status;
  const leftOut = unread.filter((line) => line.name === name);
  const storage = stored.filter(({ resource }) => resources.has(resource));
  return {
    ...rest,
    migrations,
    // The Lease of a long name has a digest in its place.
    runs: status.runs.filter(({ lease }) => [...resources].some((one) => lease.endsWith(`/${leaseName(one)}`))),
    freezes: status.freezes.filter(({ crd }) => resources.has(crd)),
    ...(storage.length === 0 ? {} : { storage }),
    ...(leftOut.length === 0 ? {} : { leftOut }),
  };
}

const MIGRATIONS = "/apis/migration.k8s.io/v1alpha1/storageversionmigrations";

/** The migrations of ours that were not deleted; none where their CRD is not installed. */
async function readMigrations(
  client: Client,
  signal: AbortSignal,
): Promise<{ readonly lines: readonly MigrationLine[]; readonly leftOut: readonly LeftOutLine[] }> {
  const lines: MigrationLine[] = [];
  const leftOut: LeftOutLine[] = [];
  for await (const item of everyItem(client, MIGRATIONS, signal)) {
    const { object, unreadable } = parseMigration(item);
    if (object === undefined) leftOut.push({ name: unreadable.name, reason: unreadable.problem });
    else if (object.metadata.deletionTimestamp === undefined) lines.push(migrationLine(object));
  }
  return { lines, leftOut };
}

/** How a StorageVersionMigration is shown. */
export function migrationLine(migration: StorageVersionMigration): MigrationLine {
  const { metadata, spec, status = {} } = migration;
  const state = stateOf(migration);
  return withoutUndefined<MigrationLine>({
    name: metadata.name,
    resource: resourceNameOf(spec.resource),
    controller: "ksvm",
    reencrypts: asksForReencryption(metadata.annotations) ? true : undefined,
    state,
    progress: status.progress,
    counts: status.counts,
    crd: status.crd,
    failures: status.failures,
    ...why(status.conditions, state),
    created: metadata.creationTimestamp,
    ended: status.completionTime,
  });
}

function inTreeLine(migration: InTreeMigration): MigrationLine {
  const { metadata, status } = migration;
  const state = inTreeState(migration);
  return withoutUndefined<MigrationLine>({
    name: metadata.name,
    resource: inTreeResource(migration),
    controller: "in-tree",
    state,
    ...why(status?.conditions, state),
    created: metadata.creationTimestamp,
  });
}

function why(conditions: NonNullable<InTreeMigration["status"]>["conditions"], state: MigrationState) {
  const { message = "", reason = "" } =
    conditions?.find(({ type, status }) => type === state && status === "True") ?? {};
  return {
    reason: reason || undefined,
    message: [reason, message].filter((text) => text !== "").join(": ") || undefined,
  };
}

/**
 * What freezes CRDs: our annotation, and the condition of Kubernetes' own migrator. CRDs are listed by their metadata;
 * only those whose managedFields say that the condition may be there are read.
 */
async function readFreezes(
  client: Client,
  inTree: Promise<readonly InTreeMigration[] | undefined>,
  signal: AbortSignal,
): Promise<readonly FreezeLine[]> {
  const lines: FreezeLine[] = [];
  const candidates: string[] = [];
  for await (const { metadata } of everyCrdMetadata(client, signal)) {
    const { managedFields = [], name } = metadata;
    lines.push(...freezeLine(metadata));
    // Another client may have emptied managedFields.
    if (managedFields.length === 0 || managedFields.some(ownsCondition)) candidates.push(name);
  }
  const found = await forEach(candidates, async (name): Promise<readonly FreezeLine[]> => {
    // By a list, since the user may have no other right.
    const query = { fieldSelector: `metadata.name=${name}` };
    const { items } = await ask(client, () => client.list<Crd>(CRDS, { query, signal }), signal);
    return items.flatMap(conditionLine);
  });
  const migrations = await inTree;
  const explained = found.flat().map((line): FreezeLine => {
    if (migrations === undefined) return line;
    const by = migrations.find((one) => isInTreeUnfinished(one) && inTreeResource(one) === line.crd);
    return { ...line, ...(by === undefined ? { isStuck: true } : { migration: by.metadata.name }) };
  });
  return [...lines, ...explained].toSorted((a, b) => a.crd.localeCompare(b.crd));
}

function freezeLine(metadata: ObjectMeta): readonly FreezeLine[] {
  const freezer = freezerOf(metadata);
  if (freezer === undefined) return [];
  const { identity: owner, lease, since } = freezer === "other" ? {} : freezer;
  return [withoutUndefined<FreezeLine>({ crd: metadata.name, owner, lease, since })];
}

function ownsCondition({ fieldsV1 }: ManagedFieldsEntry): boolean {
  const { "f:status": status } = (fieldsV1 ?? {}) as { "f:status"?: { "f:conditions"?: object } };
  return Object.hasOwn(status?.["f:conditions"] ?? {}, `k:{"type":"${STORAGE_MIGRATING}"}`);
}

/** The freeze by the condition, where it is True. */
function conditionLine({ metadata: { managedFields = [], name }, status }: Crd): readonly FreezeLine[] {
  if (!isStorageMigrating({ status })) return [];
  const { lastTransitionTime } = (status?.conditions ?? []).find(({ type }) => type === STORAGE_MIGRATING) ?? {};
  const owner = managedFields.find(ownsCondition)?.manager;
  const since = lastTransitionTime && String(lastTransitionTime);
  return [withoutUndefined<FreezeLine>({ crd: name, condition: STORAGE_MIGRATING, owner, since })];
}

async function readController(client: Client, signal: AbortSignal): Promise<ControllerLine> {
  const query = { fieldSelector: `metadata.name=${CONTROLLER_LEASE}` };
  const lines = await listLeases(client, `${LEASES}/${SYSTEM_NAMESPACE}/leases`, query, signal);
  const reason = `this user may not list Leases in namespace ${SYSTEM_NAMESPACE}`;
  return lines === undefined ? { state: "unknown", reason } : (lines[0] ?? { state: "none" });
}

async function readRuns(client: Client, unknown: string[], signal: AbortSignal): Promise<readonly RunLine[]> {
  const query = { labelSelector: `${MANAGED_BY_LABEL}=${MANAGED_BY}` };
  const list = (path: string) => listLeases(client, path, query, signal);
  let lines = await list(LEASES.replace(/namespaces$/, "leases"));
  if (lines === undefined) {
    lines = await list(`${LEASES}/${DEFAULT_LEASE_NAMESPACE}/leases`);
    const where = `${lines === undefined ? "" : "namespaces other than "}${DEFAULT_LEASE_NAMESPACE}`;
    unknown.push(`runs: this user may not list Leases in ${where}`);
  }
  const prefix = `/${leaseName("")}`;
  return (lines ?? [])
    .flatMap((line) => {
      const at = line.lease.indexOf(prefix);
      return at < 0 ? [] : [{ ...line, resource: line.lease.slice(at + prefix.length) }];
    })
    .toSorted((a, b) => a.resource.localeCompare(b.resource));
}

/** @returns `undefined` where this user may not list them */
async function listLeases(
  client: Client,
  path: string,
  query: Readonly<Record<string, string>>,
  signal: AbortSignal,
): Promise<readonly LeaseLine[] | undefined> {
  const read = ask(client, () => client.listWithSize<Lease>(path, { query, signal }), signal);
  const answer = await unlessForbidden(read);
  const now = answer?.date ?? client.clock.now();
  return answer?.body.items.map((lease) => leaseLine(lease, now));
}

/** The Date of an answer has whole seconds, and so has the time of a managedFields entry. */
const ROUNDING_MS = 2_000;
/** Those of runs, in seconds. No run waits for longer than a minute, whatever a Lease says. */
const DEFAULT_DURATION_S = 15;
const MAX_DURATION_S = 60;

/** @param now milliseconds since the Unix epoch, by the clock of an API server */
function leaseLine({ metadata, spec }: Lease, now: number): LeaseLine {
  const holder = spec?.holderIdentity || undefined;
  const renewed = renewTime(metadata) ?? (spec?.renewTime && String(spec.renewTime));
  const ageMs = now - Date.parse(renewed ?? "");
  const durationS = Math.min(spec?.leaseDurationSeconds ?? DEFAULT_DURATION_S, MAX_DURATION_S);
  const isAlive = Math.abs(ageMs) <= durationS * 1_000 + ROUNDING_MS;
  const held = isAlive ? "alive" : ageMs < 0 ? "unknown" : "silent";
  return withoutUndefined<LeaseLine>({
    state: holder === undefined ? "released" : held,
    lease: `${metadata.namespace ?? ""}/${metadata.name}`,
    holder,
    renewed,
  });
}

/** An API server stamps what it writes: `renewTime` is by the clock of the holder, which may be wrong by hours. */
function renewTime({ managedFields = [] }: ObjectMeta): string | undefined {
  const stamps = managedFields.flatMap(({ fieldsV1, time }) => {
    const { "f:spec": fields = {} } = (fieldsV1 ?? {}) as { "f:spec"?: object };
    return time !== undefined && Object.hasOwn(fields, "f:renewTime") ? [time] : [];
  });
  return stamps.toSorted().at(-1);
}

/** The line of a StorageState that lists several versions, or none that is agreed on. */
export function storageLine(resource: string, { status }: Pick<ReadStorageState, "status">): readonly StorageLine[] {
  const {
    currentStorageVersionHash: current,
    lastHeartbeatTime,
    persistedStorageVersionHashes: persisted,
  } = status ?? {};
  if (current === undefined || persisted === undefined) return [];
  if (persisted.length === 1 && persisted[0] === current && current !== UNKNOWN_HASH) return [];
  const storedVersions = persisted.map(hashTextOf);
  const line = { resource, storedVersions, storageVersion: hashTextOf(current), lookedAt: lastHeartbeatTime };
  return [withoutUndefined<StorageLine>(line)];
}

function rank({ state }: MigrationLine): number {
  return MIGRATION_STATES.indexOf(state);
}
