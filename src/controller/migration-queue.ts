import {
  isFinal,
  isFinished,
  isSuspended,
  type MigrationCondition,
  type MigrationState,
  resourceNameOf,
  stateOf,
  type StorageVersionMigration,
} from "../api/migration.ts";
import { isOfKstatus, isShownToKstatus } from "../api/kstatus.ts";
import { PRIORITY_ANNOTATION } from "../api/names.ts";
import { asksForReencryption } from "../api/reencryption.ts";
import { type PastEnd, pastEndOf } from "./expiry.ts";
import { SortedSet } from "../sorted-set.ts";
import { WaitingReasons } from "./waiting-reasons.ts";

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
  /** Whether it is to re-encrypt, so that it freezes nothing. */
  readonly isReencryption: boolean;
  /** RFC 3339. */
  readonly created: string;
  /** Without those for kstatus, which follow from these. */
  readonly conditions: readonly MigrationCondition[];
  readonly generation?: number;
  /** Whether kstatus reads of it what its state says. */
  readonly isShownToKstatus: boolean;
  /** Where it is finished, and may be deleted. */
  readonly pastEnd?: PastEnd;
}

/** The part of a migration that its place in the queue depends on. */
export function queuedOf(migration: StorageVersionMigration): QueuedMigration {
  const { name, uid, resourceVersion, generation, creationTimestamp = "", annotations } = migration.metadata;
  const { conditions = [] } = migration.status ?? {};
  const isShown = isShownToKstatus(migration);
  const pastEnd = pastEndOf(migration);
  return {
    name,
    uid,
    resourceVersion,
    resource: resourceNameOf(migration.spec.resource),
    state: stateOf(migration),
    isSuspended: isSuspended(migration),
    isLowPriority: annotations?.[PRIORITY_ANNOTATION] === "low",
    isReencryption: asksForReencryption(annotations),
    created: creationTimestamp,
    // What a migration that is over says is of no interest here, unless it is to be written again, and may be long.
    conditions: isFinished(migration) && isShown ? [] : conditions.filter(({ type }) => !isOfKstatus(type)),
    isShownToKstatus: isShown,
    ...(generation === undefined ? {} : { generation }),
    ...(pastEnd === undefined ? {} : { pastEnd }),
  };
}

/**
 * All migrations that there are, and their order: those that ran before a restart, the oldest, low priority last. A change of
 * one costs comparisons in proportion to the logarithm of their number.
 */
export class MigrationQueue {
  readonly #byUid = new Map<string, QueuedMigration>();
  readonly #states = { Pending: 0, Running: 0, Waiting: 0, Suspended: 0, Succeeded: 0, Failed: 0 };
  readonly #waiting = new WaitingReasons();
  /** By resource and uid: those that their users suspended, and that are not over. */
  readonly #suspended = new Map<string, Map<string, QueuedMigration>>();
  /** By resource: those that are to be begun. */
  readonly #due = new Map<string, SortedSet<QueuedMigration>>();
  /** Of each resource that no suspended migration holds the one that comes first. */
  readonly #heads = new SortedSet(inOrder);

  /** All of them, in no order. */
  [Symbol.iterator](): Iterator<QueuedMigration> {
    return this.#byUid.values();
  }

  get(uid: string): QueuedMigration | undefined {
    return this.#byUid.get(uid);
  }

  /** How many there are in each state. */
  get states(): Readonly<Record<MigrationState, number>> {
    return this.#states;
  }

  /** How many wait, or run and get no further, by their reason. */
  get waiting(): ReadonlyMap<string, number> {
    return this.#waiting.counts;
  }

  /** Takes one in, in the place of what was known of it. */
  set(migration: QueuedMigration): void {
    const before = this.#byUid.get(migration.uid);
    this.#byUid.set(migration.uid, migration);
    this.#states[migration.state]++;
    this.#waiting.replace(before, migration);
    if (before !== undefined) {
      this.#states[before.state]--;
    }
    if (before?.resource !== migration.resource) {
      this.#update(before?.resource, before, undefined);
      this.#update(migration.resource, undefined, migration);
    } else {
      this.#update(migration.resource, before, migration);
    }
  }

  /** @returns what was known of it */
  delete(uid: string): QueuedMigration | undefined {
    const before = this.#byUid.get(uid);
    if (before !== undefined) {
      this.#byUid.delete(uid);
      this.#states[before.state]--;
      this.#waiting.replace(before, undefined);
      this.#update(before.resource, before, undefined);
    }
    return before;
  }

  /** The first one to be begun whose resource is not being migrated. */
  next(atWork: ReadonlySet<string>): QueuedMigration | undefined {
    for (const migration of this.#heads) {
      // At most as many are passed over as there are at work.
      if (!atWork.has(migration.resource)) {
        return migration;
      }
    }
    return undefined;
  }

  /** The name of a suspended migration, because of which none of this resource begins. */
  heldBy(resource: string): string | undefined {
    return this.#suspended.get(resource)?.values().next().value?.name;
  }

  /** Those of a resource that are to be begun, once nothing holds them back. */
  dueOf(resource: string): Iterable<QueuedMigration> {
    return this.#due.get(resource) ?? [];
  }

  /**
   * Whether a migration goes on with the freeze that a dead run left on its resource, as soon as it has its turn. One that
   * is in the queue freezes again, and one that is held back may be so for weeks.
   */
  takesFreezeOver(resource: string): boolean {
    // Those that ran come first.
    const first = this.#due.get(resource)?.first;
    return this.heldBy(resource) === undefined && first?.state === "Running" && !first.isReencryption;
  }

  #update(resource = "", before: QueuedMigration | undefined, after: QueuedMigration | undefined): void {
    const due = this.#due.get(resource) ?? new SortedSet(inOrder);
    const wasHeld = this.#suspended.has(resource);
    const headBefore = wasHeld ? undefined : due.first;
    this.#updateSuspended(resource, before, after);
    const isHeld = this.#suspended.has(resource);
    replace(due, before, after);
    if (due.size === 0) {
      this.#due.delete(resource);
    } else {
      this.#due.set(resource, due);
    }
    this.#moveHead(headBefore, isHeld ? undefined : due.first);
  }

  #updateSuspended(resource: string, before: QueuedMigration | undefined, after: QueuedMigration | undefined): void {
    const suspended = this.#suspended.get(resource) ?? new Map<string, QueuedMigration>();
    suspended.delete(before?.uid ?? "");
    if (after !== undefined && after.isSuspended && !isFinal(after.state)) {
      suspended.set(after.uid, after);
    }
    if (suspended.size === 0) {
      this.#suspended.delete(resource);
    } else {
      this.#suspended.set(resource, suspended);
    }
  }

  #moveHead(before: QueuedMigration | undefined, after: QueuedMigration | undefined): void {
    if (before !== after) {
      if (before !== undefined) {
        this.#heads.delete(before);
      }
      if (after !== undefined) {
        this.#heads.add(after);
      }
    }
  }
}

/** Of the two only what is to be begun has a place. */
function replace(
  order: SortedSet<QueuedMigration>,
  before: QueuedMigration | undefined,
  after: QueuedMigration | undefined,
): void {
  if (before !== undefined && isDue(before)) {
    order.delete(before);
  }
  if (after !== undefined && isDue(after)) {
    order.add(after);
  }
}

function isDue(migration: QueuedMigration): boolean {
  return !isFinal(migration.state) && !migration.isSuspended;
}

/** The order of the queue, which is total: no two migrations have one uid. */
export function inOrder(a: QueuedMigration, b: QueuedMigration): number {
  return (
    rankOf(a) - rankOf(b) || textOrder(a.created, b.created) || textOrder(a.name, b.name) || textOrder(a.uid, b.uid)
  );
}

function textOrder(a: string, b: string): number {
  return a === b ? 0 : a < b ? -1 : 1;
}

/** One that waited has no precedence over those that never had a turn: what it waits for may still be there. */
function rankOf({ isLowPriority, state }: QueuedMigration): number {
  if (state === "Running") {
    return 0;
  }
  return isLowPriority ? 2 : 1;
}
