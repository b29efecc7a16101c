import {
  hasCondition,
  isSuspended,
  type MigrationState,
  stateOf,
  type StorageVersionMigration,
} from "../api/migration.ts";
import {
  ATTEMPT_ANNOTATION,
  CREATED_BY_LABEL,
  CREATED_BY_TRIGGER,
  HASH_ANNOTATION,
  STORAGE_VERSION_ANNOTATION,
  STORED_VERSIONS_ANNOTATION,
} from "../api/names.ts";
import { resourceNameOf } from "../api/migration.ts";
import { asksForReencryption } from "../api/reencryption.ts";

/** What the trigger keeps of a StorageVersionMigration. */
export interface MigrationFacts {
  readonly name: string;
  readonly uid: string;
  readonly resourceVersion: string;
  /** `resource.group` of what it migrates. */
  readonly resourceName: string;
  /** Whether the trigger created it. */
  readonly isOurs: boolean;
  readonly state: MigrationState;
  /** Whether a user stopped it, or all migrations are stopped: it is not begun until that is taken back. */
  readonly isSuspended: boolean;
  /** Whether it is to re-encrypt: it is its user's, whatever the trigger finds. */
  readonly isReencryption: boolean;
  /** Of the condition of its state, such as `FreezeLifted`. */
  readonly reason?: string;
  /** Milliseconds since the Unix epoch; NaN where it cannot be told. */
  readonly createdAt: number;
  /** When it ended, in milliseconds since the Unix epoch; its creation where that cannot be told. */
  readonly endedAt: number;
  /** The hash that it migrates to; missing if it is unknown. */
  readonly hash?: string;
  readonly attempt: number;
  readonly storedVersions?: string;
  /** Of the StorageVersion before it began. */
  readonly storageVersion?: string;
  /** `uid/generation` of the CRD when every object was proven to be in the storage version; missing where none was. */
  readonly provenCrd?: string;
}

/** Reads what matters of a migration. */
export function migrationFactsOf(migration: StorageVersionMigration): MigrationFacts {
  const { metadata, spec, status = {} } = migration;
  const labels = metadata.labels ?? {};
  const state = stateOf(migration);
  const ended = status.conditions?.find((condition) => condition.type === state && condition.status === "True");
  const createdAt = Date.parse(metadata.creationTimestamp ?? "");
  const endedAt = Date.parse(ended?.lastUpdateTime ?? "");
  return {
    name: metadata.name,
    uid: metadata.uid,
    resourceVersion: metadata.resourceVersion,
    resourceName: resourceNameOf(spec.resource),
    isOurs: labels[CREATED_BY_LABEL] === CREATED_BY_TRIGGER,
    state,
    isSuspended: isStopped(migration),
    isReencryption: asksForReencryption(metadata.annotations),
    createdAt,
    endedAt: Number.isNaN(endedAt) ? createdAt : endedAt,
    ...optional("reason", ended?.reason),
    ...optional("provenCrd", status.crd),
    ...annotatedFactsOf(metadata.annotations ?? {}),
  };
}

function annotatedFactsOf(annotations: Readonly<Record<string, string>>) {
  const attempt = Number(annotations[ATTEMPT_ANNOTATION]);
  return {
    attempt: Number.isInteger(attempt) && attempt > 0 ? attempt : 1,
    ...optional("hash", annotations[HASH_ANNOTATION]),
    ...optional("storedVersions", annotations[STORED_VERSIONS_ANNOTATION]),
    ...optional("storageVersion", annotations[STORAGE_VERSION_ANNOTATION]),
  };
}

/** A user wants it stopped, or the controller says that it is. */
function isStopped(migration: StorageVersionMigration): boolean {
  return isSuspended(migration) || hasCondition(migration, "Suspended");
}

function optional<K extends string>(key: K, value: string | undefined): { readonly [key in K]?: string } {
  return value === undefined ? {} : ({ [key]: value } as { readonly [key in K]: string });
}
