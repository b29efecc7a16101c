import { isOfKstatus, isShownToKstatus } from "../api/kstatus.ts";
import {
  hasCondition,
  isFinal,
  isFinished,
  isSuspended,
  type MigrationCondition,
  type MigrationState,
  resourceNameOf,
  stateOf,
  type StorageVersionMigration,
} from "../api/migration.ts";
import { CREATED_BY_LABEL, CREATED_BY_TRIGGER, PRIORITY_ANNOTATION } from "../api/names.ts";
import { ERROR_CODES } from "../errors.ts";
import { isLater } from "../kube/objects.ts";
import type { MigrationChange } from "../migrations/migration-feed.ts";
import { OWN_REASONS } from "./migration-status.ts";

/** The end of a migration that may be deleted. */
export interface PastEnd {
  /** Milliseconds since the Unix epoch. */
  readonly endedAt: number;
  /**
   * When it is to be deleted by its `spec.ttlSecondsAfterFinished`, in milliseconds since the Unix epoch; missing where
   * never.
   */
  readonly expiresAt?: number;
}

/**
 * The end of a finished migration; `undefined` where it is not finished, or stays in any case. Those of the trigger do:
 * it counts its attempts by them, and removes them itself. So does one whose freeze another client lifted: by it alone
 * the trigger knows that it may not freeze the CRD again. And one that is deleted already: a finalizer may keep it for
 * weeks.
 */
function pastEndOf(migration: StorageVersionMigration): PastEnd | undefined {
  const { metadata, spec, status = {} } = migration;
  const { ttlSecondsAfterFinished: ttl } = spec;
  const isOfTrigger = metadata.labels?.[CREATED_BY_LABEL] === CREATED_BY_TRIGGER;
  const endedAt = Date.parse(status.completionTime ?? "");
  const isDeleted = metadata.deletionTimestamp !== undefined;
  const isLifted =
    hasCondition(migration, "Failed") && (status.conditions ?? []).some(({ reason }) => reason === "FreezeLifted");
  if (isDeleted || isOfTrigger || isLifted || !isFinished(migration) || Number.isNaN(endedAt)) return undefined;
  return { endedAt, ...(ttl === undefined ? {} : { expiresAt: endedAt + ttl * 1_000 }) };
}

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
    created: creationTimestamp,
    // What a migration that is over says is of no interest here, unless it is to be written again, and may be long.
    conditions: isFinished(migration) && isShown ? [] : conditions.filter(({ type }) => !isOfKstatus(type)),
    isShownToKstatus: isShown,
    ...(generation === undefined ? {} : { generation }),
    ...(pastEnd === undefined ? {} : { pastEnd }),
  };
}

/**
 * All migrations that there are: what the feed told last, or a newer answer to a write of this replica. There may be
 * twenty thousand, so whoever looks at all of them does that once for many changes.
 */
export class MigrationQueue {
  readonly #byUid = new Map<string, QueuedMigration>();

  /** All of them, in no order. */
  [Symbol.iterator](): Iterator<QueuedMigration> {
    return this.#byUid.values();
  }

  get(uid: string): QueuedMigration | undefined {
    return this.#byUid.get(uid);
  }

  /** Takes in what the feed tells. */
  apply(change: MigrationChange): void {
    switch (change.type) {
      case "listing":
        return;
      case "listed":
        // Whatever their resourceVersions: after a restore of etcd they are lower than those known.
        this.#byUid.clear();
        for (const migration of change.migrations) this.set(queuedOf(migration));
        return;
      case "changed":
        this.take(change.migration);
        return;
      case "deleted":
        this.#byUid.delete(change.uid);
    }
  }

  /** Takes in a newer state of one. */
  take(migration: StorageVersionMigration): void {
    const known = this.#byUid.get(migration.metadata.uid);
    if (known === undefined || isLater(migration.metadata.resourceVersion, known.resourceVersion)) {
      this.set(queuedOf(migration));
    }
  }

  set(migration: QueuedMigration): void {
    this.#byUid.set(migration.uid, migration);
  }

  /** By resource the name of a suspended migration, because of which none of this resource begins. */
  held(): ReadonlyMap<string, string> {
    const suspended = [...this].filter((one) => one.isSuspended && !isFinal(one.state));
    return new Map(suspended.map(({ name, resource }) => [resource, name]));
  }

  /**
   * Those that are to be begun, of each resource the first one: those that ran before a restart, then those whose last turn
   * is the longest ago, then the oldest, low priority last.
   * @param turn when one had its last turn. @default none had one
   */
  heads(turn: (migration: QueuedMigration) => number = () => 0): readonly QueuedMigration[] {
    const order = (a: QueuedMigration, b: QueuedMigration): number =>
      rankOf(a) - rankOf(b) || (turn(a) === turn(b) ? 0 : turn(a) < turn(b) ? -1 : 1) || inOrder(a, b);
    const held = this.held();
    const first = new Map<string, QueuedMigration>();
    for (const migration of this) {
      const { resource } = migration;
      if (isFinal(migration.state) || held.has(resource)) continue;
      const other = first.get(resource);
      if (other === undefined || order(migration, other) < 0) first.set(resource, migration);
    }
    return [...first.values()].toSorted(order);
  }
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
  if (state === "Running") return 0;
  return isLowPriority ? 2 : 1;
}

/** Beside the codes of errors. Users may write a status, too: any other reason is {@link OTHER}. */
const REASONS: ReadonlySet<string> = new Set([...ERROR_CODES, ...OWN_REASONS]);
const OTHER = "Other";

/** How many migrations there are in each state, and how many wait, or run and get no further, by their reason. */
export function countStates(migrations: Iterable<QueuedMigration>): {
  readonly states: Readonly<Record<MigrationState, number>>;
  readonly waiting: ReadonlyMap<string, number>;
} {
  const states = { Pending: 0, Running: 0, Waiting: 0, Suspended: 0, Succeeded: 0, Failed: 0 };
  const waiting = new Map<string, number>();
  for (const { conditions, state } of migrations) {
    states[state]++;
    if (state !== "Waiting" && state !== "Running") continue;
    const { reason = "" } = conditions.find(({ type, status }) => type === state && status === "True") ?? {};
    // One that runs has a reason while it gets no further; one that waits always does.
    if (state === "Running" && reason === "") continue;
    const known = REASONS.has(reason) ? reason : OTHER;
    waiting.set(known, (waiting.get(known) ?? 0) + 1);
  }
  return { states, waiting };
}
