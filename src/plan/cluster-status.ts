import type { PartialObjectMetadata } from "../api/meta.ts";
import {
  MIGRATION_STATES,
  type MigrationCondition,
  type MigrationCounts,
  type MigrationFailure,
  type MigrationState,
  resourceNameOf,
  stateOf,
  type StorageVersionMigration,
  SYSTEM_NAMESPACE,
} from "../api/migration.ts";
import { REENCRYPT_ANNOTATION } from "../api/names.ts";
import { freezerOf } from "../api/owner.ts";
import { parseMigration } from "../api/parse-migration.ts";
import { asksForReencryption } from "../api/reencryption.ts";
import { isUnserved } from "../kube/absent.ts";
import type { CallOptions } from "../kube/call-options.ts";
import type { ApiClient } from "../kube/client.ts";
import { ApiError } from "../kube/errors.ts";
import type { Projection } from "../json/json-projection.ts";
import { listProjected } from "../kube/list-projected.ts";
import { collectionPath, CRDS, MIGRATIONS } from "../kube/resources.ts";
import { TokenTrail } from "../kube/token-trail.ts";
import { readSuspendMark, type SuspendMark } from "../suspend/suspend-mark.ts";
import {
  type InTreeMigration,
  inTreeMigrations,
  inTreeResourceOf,
  inTreeStateOf,
} from "../in-tree/in-tree-migrations.ts";
import { metadataProjection } from "../kube/metadata-projection.ts";

/** One migration, by any migrator. Field names are those of `ksvm status -o json`. */
export interface MigrationLine {
  /** Of the object. */
  readonly name: string;
  /** `plural.group`, the plural alone in the core group. */
  readonly resource: string;
  /** `in-tree` is Kubernetes' own migrator. */
  readonly controller: "ksvm" | "in-tree";
  /** Whether it re-encrypts: that says nothing of the storage version, and the storage version nothing of that. Missing where not. */
  readonly reencrypts?: true;
  readonly state: MigrationState;
  /** "looked at of all". */
  readonly progress?: string;
  readonly counts?: MigrationCounts;
  readonly failures?: readonly MigrationFailure[];
  /** 1 for the one that is next. */
  readonly queuePosition?: number;
  /** Why it is in this state. */
  readonly message?: string;
  /** RFC 3339. */
  readonly created?: string;
}

/** One CRD whose storage version is frozen by the annotation. */
export interface FreezeLine {
  readonly crd: string;
  /** Who froze it; missing where it was not this program. */
  readonly owner?: string;
  /** `namespace/name` of the Lease that says whether its owner lives. */
  readonly lease?: string;
  /** RFC 3339. */
  readonly since?: string;
}

/** One migration that cannot be read. */
export interface LeftOutLine {
  /** Of the object. */
  readonly name: string;
  readonly reason: string;
}

/** What is going on in a cluster. */
export interface ClusterStatus {
  readonly migrations: readonly MigrationLine[];
  readonly freezes: readonly FreezeLine[];
  /** Missing where not all migrations are suspended. */
  readonly suspended?: SuspendMark;
  /** Migrations that cannot be read, so that no controller carries them out; missing where there is none. */
  readonly leftOut?: readonly LeftOutLine[];
}

const PAGE_SIZE = 100;
/** What is read of a migration for its line: its managedFields and other annotations may have a megabyte. */
const LINE_FIELDS: Projection = {
  fields: {
    metadata: metadataProjection({
      creationTimestamp: "all",
      annotations: { fields: { [REENCRYPT_ANNOTATION]: "all" } },
    }),
    spec: { fields: { resource: "all", suspend: "all" } },
    status: "all",
  },
};

/**
 * Reads every migration and every freeze, those of `ksvm migrate` too. CRDs are listed by their metadata.
 * @throws {ApiError | TransportError}
 */
export async function readClusterStatus(client: ApiClient, options: CallOptions = {}): Promise<ClusterStatus> {
  const [ours, inTree, freezes, suspended] = await Promise.all([
    readMigrations(client, options),
    inTreeMigrations(client, options),
    readFreezes(client, options),
    readSuspended(client, options),
  ]);
  const { leftOut, lines } = ours;
  const migrations = [...lines, ...inTree.map(inTreeLineOf)].toSorted(
    (a, b) => rank(a) - rank(b) || a.name.localeCompare(b.name),
  );
  return {
    migrations,
    freezes,
    ...(suspended === undefined ? {} : { suspended }),
    ...(leftOut.length === 0 ? {} : { leftOut }),
  };
}

function rank({ state }: MigrationLine): number {
  return MIGRATION_STATES.indexOf(state);
}

/** The part of a status that is about one resource or one migration. */
export function statusOf(status: ClusterStatus, name: string): ClusterStatus {
  const migrations = status.migrations.filter((line) => line.name === name || line.resource === name);
  const resources = new Set([name, ...migrations.map(({ resource }) => resource)]);
  const leftOut = status.leftOut?.filter((line) => line.name === name) ?? [];
  const { leftOut: _all, ...rest } = status;
  const freezes = status.freezes.filter(({ crd }) => resources.has(crd));
  return { ...rest, migrations, freezes, ...(leftOut.length === 0 ? {} : { leftOut }) };
}

/** How a StorageVersionMigration is shown. */
export function migrationLineOf(migration: StorageVersionMigration): MigrationLine {
  const { metadata, spec, status = {} } = migration;
  const state = stateOf(migration);
  const condition = status.conditions?.find(({ type, status: value }) => type === state && value === "True");
  return {
    name: metadata.name,
    resource: resourceNameOf(spec.resource),
    controller: "ksvm",
    ...(asksForReencryption(metadata.annotations) ? { reencrypts: true } : {}),
    state,
    ...(status.progress === undefined ? {} : { progress: status.progress }),
    ...(status.counts === undefined ? {} : { counts: status.counts }),
    ...(status.queuePosition === undefined ? {} : { queuePosition: status.queuePosition }),
    ...(status.failures === undefined ? {} : { failures: status.failures }),
    ...messageOf(condition),
    ...createdOf(metadata),
  };
}

function inTreeLineOf(migration: InTreeMigration): MigrationLine {
  const state = MIGRATION_STATES.find((known) => known === inTreeStateOf(migration)) ?? "Pending";
  const condition = migration.status?.conditions?.find(({ type, status }) => type === state && status === "True");
  return {
    name: migration.metadata.name,
    resource: inTreeResourceOf(migration),
    controller: "in-tree",
    state,
    ...messageOf(condition),
    ...createdOf(migration.metadata),
  };
}

function messageOf(condition: Pick<MigrationCondition, "reason" | "message"> | undefined): { message?: string } {
  const words = [condition?.reason, condition?.message].filter((text) => text !== undefined && text !== "");
  return words.length === 0 ? {} : { message: words.join(": ") };
}

function createdOf({ creationTimestamp }: { readonly creationTimestamp?: string }): { created?: string } {
  return creationTimestamp === undefined ? {} : { created: creationTimestamp };
}

interface ReadMigrations {
  readonly lines: readonly MigrationLine[];
  readonly leftOut: readonly LeftOutLine[];
}

async function readMigrations(client: ApiClient, options: CallOptions): Promise<ReadMigrations> {
  const lines: MigrationLine[] = [];
  const leftOut: LeftOutLine[] = [];
  try {
    const list = { limit: PAGE_SIZE, projection: LINE_FIELDS, ...options };
    for (const item of (await listProjected(client.transport, MIGRATIONS, list)).items) {
      const { object, unreadable } = parseMigration(item);
      if (object === undefined) {
        leftOut.push({ name: unreadable.name, reason: unreadable.problem });
      } else {
        lines.push(migrationLineOf(object));
      }
    }
  } catch (error) {
    // The CRDs are not installed.
    if (!(await isUnserved(client.transport, MIGRATIONS, error, options))) {
      throw error;
    }
  }
  return { lines, leftOut };
}

/** Not every user who may list migrations may read Leases of ours. */
async function readSuspended(client: ApiClient, options: CallOptions): Promise<SuspendMark | undefined> {
  try {
    return await readSuspendMark(client, SYSTEM_NAMESPACE, options);
  } catch (error) {
    if (error instanceof ApiError && error.status === 403) {
      return undefined;
    }
    throw error;
  }
}

async function readFreezes(client: ApiClient, options: CallOptions): Promise<readonly FreezeLine[]> {
  const lines: FreezeLine[] = [];
  const trail = new TokenTrail(collectionPath(CRDS));
  let continueToken: string | undefined;
  do {
    const page = await client.listMetadata(CRDS, { limit: PAGE_SIZE, continueToken, ...options });
    lines.push(...page.items.flatMap(freezeLineOf));
    continueToken = trail.next(page.metadata.continue);
  } while (continueToken !== undefined);
  return lines;
}

function freezeLineOf({ metadata }: PartialObjectMetadata): readonly FreezeLine[] {
  const freezer = freezerOf(metadata);
  if (freezer === undefined) {
    return [];
  }
  const owner = freezer.kind === "run" ? freezer.owner : undefined;
  const line = { crd: metadata.name };
  return [owner === undefined ? line : { ...line, owner: owner.identity, lease: owner.lease, since: owner.since }];
}
