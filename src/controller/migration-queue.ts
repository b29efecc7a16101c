import { resourceNameOf, type StorageVersionMigration } from "../api/migration.ts";
import { PRIORITY_ANNOTATION } from "../api/names.ts";
import { type MigrationState, stateOf } from "./migration-status.ts";

/** What the controller keeps of a migration. */
export interface QueuedMigration {
  readonly name: string;
  readonly uid: string;
  /** `plural.group`, the plural alone in the core group. */
  readonly resource: string;
  readonly state: MigrationState;
  readonly isLowPriority: boolean;
  /** RFC 3339. */
  readonly created: string;
}

/** The part of a migration that queueing goes by. */
export function queuedOf(migration: StorageVersionMigration): QueuedMigration {
  const { name, uid, creationTimestamp = "", annotations } = migration.metadata;
  return {
    name,
    uid,
    resource: resourceNameOf(migration.spec.resource),
    state: stateOf(migration),
    isLowPriority: annotations?.[PRIORITY_ANNOTATION] === "low",
    created: creationTimestamp,
  };
}

/** Whether it has ended for good. */
export function isOver({ state }: Pick<QueuedMigration, "state">): boolean {
  return state === "Succeeded" || state === "Failed";
}

/**
 * The migrations to begin with, in this order: those that ran before a restart, then the oldest, those of low priority
 * last. Of one resource only one, and none of a resource that is being migrated.
 *
 * @param busy the resources that are being migrated
 * @param free how many may be begun
 */
export function nextOf(
  migrations: Iterable<QueuedMigration>,
  busy: ReadonlySet<string>,
  free: number,
): readonly QueuedMigration[] {
  const taken = new Set(busy);
  const due = [...migrations].filter((migration) => !isOver(migration)).toSorted(inOrder);
  const next: QueuedMigration[] = [];
  for (const migration of due) {
    if (next.length < free && !taken.has(migration.resource)) {
      taken.add(migration.resource);
      next.push(migration);
    }
  }
  return next;
}

function inOrder(a: QueuedMigration, b: QueuedMigration): number {
  return rankOf(a) - rankOf(b) || a.created.localeCompare(b.created) || a.name.localeCompare(b.name);
}

function rankOf({ isLowPriority, state }: QueuedMigration): number {
  if (state === "Running" || state === "Waiting") {
    return 0;
  }
  return isLowPriority ? 2 : 1;
}
