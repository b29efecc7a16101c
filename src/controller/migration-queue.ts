import {
  isSuspended,
  type MigrationCondition,
  type MigrationState,
  resourceNameOf,
  stateOf,
  type StorageVersionMigration,
} from "../api/migration.ts";
import { PRIORITY_ANNOTATION } from "../api/names.ts";

/** What the controller keeps of a migration. */
export interface QueuedMigration {
  readonly name: string;
  readonly uid: string;
  readonly resourceVersion: string;
  /** `plural.group`, the plural alone in the core group. */
  readonly resource: string;
  readonly state: MigrationState;
  /** Whether its own `spec.suspend` is true. */
  readonly isSuspended: boolean;
  readonly isLowPriority: boolean;
  /** RFC 3339. */
  readonly created: string;
  readonly conditions: readonly MigrationCondition[];
  readonly queuePosition?: number;
}

/** The part of a migration that queueing goes by. */
export function queuedOf(migration: StorageVersionMigration): QueuedMigration {
  const { name, uid, resourceVersion, creationTimestamp = "", annotations } = migration.metadata;
  const { conditions = [], queuePosition } = migration.status ?? {};
  return {
    name,
    uid,
    resourceVersion,
    resource: resourceNameOf(migration.spec.resource),
    state: stateOf(migration),
    isSuspended: isSuspended(migration),
    isLowPriority: annotations?.[PRIORITY_ANNOTATION] === "low",
    created: creationTimestamp,
    // What a migration that is over says is of no interest here, and its failures may be long.
    conditions: isOver({ state: stateOf(migration) }) ? [] : conditions,
    ...(queuePosition === undefined ? {} : { queuePosition }),
  };
}

/** Whether it has ended for good. */
export function isOver({ state }: Pick<QueuedMigration, "state">): boolean {
  return state === "Succeeded" || state === "Failed";
}

/** The resources that no migration begins of, since one of them is suspended, with the name of that one. */
export function heldBy(migrations: Iterable<QueuedMigration>): ReadonlyMap<string, string> {
  const suspended = [...migrations].filter((migration) => migration.isSuspended && !isOver(migration));
  return new Map(suspended.map(({ name, resource }) => [resource, name]));
}

/**
 * Whether a migration goes on with the freeze that a dead run left on its resource, as soon as it has its turn. One that
 * is in the queue freezes anew, and one that is held back may be so for weeks.
 */
export function takesFreezeOver(migrations: Iterable<QueuedMigration>, resource: string): boolean {
  const all = [...migrations].filter((migration) => migration.resource === resource);
  return !heldBy(all).has(resource) && all.some(({ state }) => state === "Running");
}

/** The migrations that are to be begun, in their order: those that ran before a restart, the oldest, low priority last. */
export function queueOf(migrations: Iterable<QueuedMigration>): readonly QueuedMigration[] {
  return [...migrations].filter((migration) => !isOver(migration) && !migration.isSuspended).toSorted(inOrder);
}

/**
 * The migration to begin with: the first of the queue whose resource is free.
 *
 * @param busy the resources that are being migrated, or held by a suspended migration
 */
export function nextOf(migrations: Iterable<QueuedMigration>, busy: ReadonlySet<string>): QueuedMigration | undefined {
  let next: QueuedMigration | undefined;
  for (const migration of migrations) {
    const isDue = !isOver(migration) && !migration.isSuspended && !busy.has(migration.resource);
    if (isDue && (next === undefined || inOrder(migration, next) < 0)) {
      next = migration;
    }
  }
  return next;
}

function inOrder(a: QueuedMigration, b: QueuedMigration): number {
  return rankOf(a) - rankOf(b) || compare(a.created, b.created) || compare(a.name, b.name);
}

function compare(a: string, b: string): number {
  return a === b ? 0 : a < b ? -1 : 1;
}

/** One that waited has no precedence over those that never had a turn: what it waits for may still be there. */
function rankOf({ isLowPriority, state }: QueuedMigration): number {
  if (state === "Running") {
    return 0;
  }
  return isLowPriority ? 2 : 1;
}
