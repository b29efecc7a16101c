import type { ObjectMeta } from "./meta.ts";

/**
 * The API group of the migrator's proposal ("Migrating API objects to latest storage version") and of
 * kubernetes-sigs/kube-storage-version-migrator.
 */
export const MIGRATION_GROUP = "migration.k8s.io";
export const MIGRATION_API_VERSION = "migration.k8s.io/v1alpha1";
/** The paths of both resources of it, as those of src/kube/objects.ts. */
export const MIGRATIONS = `/apis/${MIGRATION_API_VERSION}/storageversionmigrations`;
export const STORAGE_STATES = `/apis/${MIGRATION_API_VERSION}/storagestates`;

/** The namespace that everything installed lives in, named by the migrator's proposal. */
export const SYSTEM_NAMESPACE = "kube-storage-migration";

/** The Lease in {@link SYSTEM_NAMESPACE} that the controller which migrates holds. */
export const CONTROLLER_LEASE = "ksvm-controller";

/** In StorageState: objects may be stored in a version that was not recorded, or API servers disagree. */
export const UNKNOWN_HASH = "Unknown";

/** A resource of a StorageVersionMigration, at the version that its objects are read and written at. */
export interface GroupVersionResource {
  /** Absent or empty for the core group. */
  readonly group?: string;
  readonly version: string;
  readonly resource: string;
}

/**
 * Every state that a migration can be in: the condition that stands for it. Pending also where no condition is True.
 * Three are ours: Waiting is a Running one that waits for others, Pending one that is in the queue, and Suspended one
 * that a user stopped (`spec.suspend`).
 */
export const MIGRATION_STATES = ["Running", "Waiting", "Suspended", "Pending", "Failed", "Succeeded"] as const;
/** One of {@link MIGRATION_STATES}. */
export type MigrationState = (typeof MIGRATION_STATES)[number];

/** The conditions that kstatus reads (src/api/kstatus.ts). Neither is a state: each is there only while it is True. */
export const KSTATUS_CONDITIONS = ["Reconciling", "Stalled"] as const;
/** The condition types of a StorageVersionMigration. */
export type MigrationConditionType = MigrationState | (typeof KSTATUS_CONDITIONS)[number];

/**
 * What migrations do with a CRD: `manage` freezes it and prunes storedVersions; `rewrite` rewrites its objects alone.
 */
export type CrdMode = "manage" | "rewrite";

/** One entry of `status.conditions` of a StorageVersionMigration. */
export interface MigrationCondition {
  readonly type: MigrationConditionType;
  readonly status: "True" | "False" | "Unknown";
  /** RFC 3339. */
  readonly lastUpdateTime?: string;
  readonly reason?: string;
  readonly message?: string;
}

/** One object that could not be rewritten. */
export interface MigrationFailure {
  readonly namespace?: string;
  readonly name: string;
  readonly reason: string;
}

/** Numbers of objects. */
export interface MigrationCounts {
  readonly migrated: number;
  readonly skipped: number;
  readonly failed: number;
  /** As the API server estimates it; absent where it does not. */
  readonly remaining?: number;
}

/** What the controller writes about a migration; every field is optional. */
export interface MigrationStatus {
  /**
   * `metadata.generation` of the migration that this status is of; -1 where no replica has looked at it, by our CRD.
   */
  readonly observedGeneration?: number;
  readonly conditions?: readonly MigrationCondition[];
  readonly counts?: MigrationCounts;
  /** "migrated of all", for the printer column. */
  readonly progress?: string;
  /**
   * `uid/generation` of the CRD of a custom resource, when every object was proven to be in its storage version.
   * Written with the Succeeded condition.
   */
  readonly crd?: string;
  /** The first hundred. */
  readonly failures?: readonly MigrationFailure[];
  readonly startTime?: string;
  readonly completionTime?: string;
}

/** A request to rewrite all objects of one resource. Cluster-scoped; `spec.resource` never changes. */
export interface StorageVersionMigration {
  readonly apiVersion: string;
  readonly kind: string;
  readonly metadata: ObjectMeta;
  readonly spec: {
    readonly resource: GroupVersionResource;
    readonly continueToken?: string;
    /** Stops it: its freeze is lifted and nothing is written until this is false or absent again. @default false */
    readonly suspend?: boolean;
    /** Seconds after its end after which the controller deletes it, as in Job. @default it stays */
    readonly ttlSecondsAfterFinished?: number;
  };
  readonly status?: MigrationStatus;
}

/**
 * What is known of how the objects of one resource are stored, as in the proposal "Storage migration triggering
 * controller". Cluster-scoped, `<resource>.<group>`.
 */
export interface StorageState {
  readonly apiVersion: string;
  readonly kind: string;
  readonly metadata: ObjectMeta;
  readonly spec: { readonly resource: { readonly group?: string; readonly resource: string } };
  readonly status?: {
    /** Hashes of all versions that objects may be stored in; {@link UNKNOWN_HASH} among them if others are possible. */
    readonly persistedStorageVersionHashes?: readonly string[];
    readonly currentStorageVersionHash?: string;
    /** RFC 3339. */
    readonly lastHeartbeatTime?: string;
  };
}

/**
 * Milliseconds after which the heartbeat of a StorageState is too old, so that changes may have been missed: ten
 * minutes in the proposal "Storage migration triggering controller".
 */
export const HEARTBEAT_LIMIT_MS = 600_000;

/** `plural.group`, and the plural alone in the core group: as StorageStates and migrations are named. */
export function resourceNameOf({ group, resource }: { readonly group?: string; readonly resource: string }): string {
  return group === undefined || group === "" ? resource : `${resource}.${group}`;
}

/** Whether the condition is there and True. */
export function hasCondition(
  { status }: Pick<StorageVersionMigration, "status">,
  type: MigrationConditionType,
): boolean {
  return status?.conditions?.some((condition) => condition.type === type && condition.status === "True") ?? false;
}

/** The state that stands for a migration; a finished one is never anything else. */
export function stateOf(migration: Pick<StorageVersionMigration, "status">): MigrationState {
  const types = ["Succeeded", "Failed", "Suspended", "Waiting", "Running"] as const;
  return types.find((type) => hasCondition(migration, type)) ?? "Pending";
}

/**
 * The reasons of `Succeeded` by which ksvm says that every object was looked at. Any client may write that condition,
 * as kube-storage-version-migrator does, which gives no reason.
 */
const WHOLE_REASONS: readonly string[] = ["Migrated", "Reencrypted"];

/** Whether the reason of a `Succeeded` condition says that a run of ksvm has looked at every object. */
export function isWholeRun(reason: string | undefined): boolean {
  return reason !== undefined && WHOLE_REASONS.includes(reason);
}

/** Whether its user wants it stopped (`spec.suspend`), whether or not it is yet. */
export function isSuspended({ spec }: Pick<StorageVersionMigration, "spec">): boolean {
  return spec.suspend === true;
}

/** Whether a migration in this state has ended, which it does for good. */
export function isFinal(state: MigrationState): boolean {
  return state === "Succeeded" || state === "Failed";
}

/** Whether a migration has ended, which it does for good. */
export function isFinished(migration: StorageVersionMigration): boolean {
  return isFinal(stateOf(migration));
}
