import {
  MIGRATION_STATES,
  type MigrationCondition,
  type MigrationCounts,
  type MigrationFailure,
  type MigrationState,
  resourceNameOf,
  stateOf,
  type StorageVersionMigration,
} from "../api/migration.ts";
import { REENCRYPT_ANNOTATION } from "../api/names.ts";
import { parseMigration } from "../api/parse-migration.ts";
import { asksForReencryption } from "../api/reencryption.ts";
import { type InTreeMigration, inTreeResourceOf, inTreeStateOf } from "../in-tree/in-tree-migrations.ts";
import type { Projection } from "../old/json/json-projection.ts";
import { isUnserved } from "../old/kube/absent.ts";
import type { CallOptions } from "../old/kube/call-options.ts";
import type { ApiClient } from "../old/kube/client.ts";
import { listProjected } from "../old/kube/list-projected.ts";
import { metadataProjection } from "../old/kube/metadata-projection.ts";
import { MIGRATIONS } from "../old/kube/resources.ts";
import { isDeleted } from "../migrations/read-migration.ts";

/** One migration, by any migrator. Field names are those of `ksvm status -o json`. */
export interface MigrationLine {
  /** Of the object. */
  readonly name: string;
  /** `plural.group`, the plural alone in the core group. */
  readonly resource: string;
  /** `in-tree` is Kubernetes' own migrator. */
  readonly controller: "ksvm" | "in-tree";
  /**
   * Whether it re-encrypts: that says nothing of the storage version, and the storage version nothing of that. Missing
   * where not.
   */
  readonly reencrypts?: true;
  readonly state: MigrationState;
  /** "looked at of all". */
  readonly progress?: string;
  readonly counts?: MigrationCounts;
  readonly failures?: readonly MigrationFailure[];
  /** `uid/generation` of the CRD when ksvm had proven every object; missing where it has not. */
  readonly crd?: string;
  /** 1 for the one that is next. */
  /** Why it is in this state, in one word. */
  readonly reason?: string;
  /** The same, with what there is to say of it. */
  readonly message?: string;
  /** RFC 3339. */
  readonly created?: string;
  /** When it ended, RFC 3339; missing before, and where its migrator does not tell. */
  readonly ended?: string;
}

/** One migration that cannot be read. */
export interface LeftOutLine {
  /** Of the object. */
  readonly name: string;
  readonly reason: string;
}

const PAGE_SIZE = 100;
/** What is read of a migration for its line: its managedFields and other annotations may have a megabyte. */
const LINE_FIELDS: Projection = {
  fields: {
    metadata: metadataProjection({
      creationTimestamp: "all",
      deletionTimestamp: "all",
      annotations: { fields: { [REENCRYPT_ANNOTATION]: "all" } },
    }),
    spec: { fields: { resource: "all", suspend: "all" } },
    status: "all",
  },
};

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
    ...(status.crd === undefined ? {} : { crd: status.crd }),
    ...(status.failures === undefined ? {} : { failures: status.failures }),
    ...whyOf(condition),
    ...createdOf(metadata),
    ...(status.completionTime === undefined ? {} : { ended: status.completionTime }),
  };
}

/** How a migration of Kubernetes' own migrator is shown. */
export function inTreeLineOf(migration: InTreeMigration): MigrationLine {
  const state = MIGRATION_STATES.find((known) => known === inTreeStateOf(migration)) ?? "Pending";
  const condition = migration.status?.conditions?.find(({ type, status }) => type === state && status === "True");
  return {
    name: migration.metadata.name,
    resource: inTreeResourceOf(migration),
    controller: "in-tree",
    state,
    ...whyOf(condition),
    ...createdOf(migration.metadata),
  };
}

function whyOf(
  condition: Pick<MigrationCondition, "reason" | "message"> | undefined,
): Pick<MigrationLine, "reason" | "message"> {
  const { message = "", reason = "" } = condition ?? {};
  const words = [reason, message].filter((text) => text !== "");
  return { ...(reason === "" ? {} : { reason }), ...(words.length === 0 ? {} : { message: words.join(": ") }) };
}

function createdOf({ creationTimestamp }: { readonly creationTimestamp?: string }): { created?: string } {
  return creationTimestamp === undefined ? {} : { created: creationTimestamp };
}

/** Migrations of ours. */
export interface MigrationLines {
  readonly lines: readonly MigrationLine[];
  readonly leftOut: readonly LeftOutLine[];
}

/**
 * Reads the migrations of ours that were not deleted; none where their CRD is not installed.
 * @throws {ApiError}
 */
export async function readMigrationLines(client: ApiClient, options: CallOptions): Promise<MigrationLines> {
  const lines: MigrationLine[] = [];
  const leftOut: LeftOutLine[] = [];
  try {
    const list = { limit: PAGE_SIZE, projection: LINE_FIELDS, ...options };
    for (const item of (await listProjected(client.transport, MIGRATIONS, list)).items) {
      const { object, unreadable } = parseMigration(item);
      if (object === undefined) {
        leftOut.push({ name: unreadable.name, reason: unreadable.problem });
      } else if (!isDeleted(object)) {
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

/** The order in which lines are shown: by state, what is under way first, then by name. */
export function sortedLines(lines: readonly MigrationLine[]): readonly MigrationLine[] {
  return lines.toSorted((a, b) => rank(a) - rank(b) || a.name.localeCompare(b.name));
}

function rank({ state }: MigrationLine): number {
  return MIGRATION_STATES.indexOf(state);
}
