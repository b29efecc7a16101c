import { withKstatus } from "../api/kstatus.ts";
import { isFinal, type MigrationCondition } from "../api/migration.ts";
import { type MigrationQueue, type QueuedMigration } from "./migration-queue.ts";
import { conditionsIn, type Phase } from "./migration-status.ts";

/** What goes on in the controller, for those migrations that it does not carry out just now. */
export interface IdleContext {
  /** By uid: the names of the migrations that are being carried out. */
  readonly atWork: ReadonlyMap<string, string>;
  /** Of those the ones that have a slot. */
  readonly running: readonly string[];
  /** RFC 3339. */
  readonly now: string;
}

/** The status that a migration ought to show. */
export interface IdleStatus {
  readonly migration: QueuedMigration;
  readonly conditions: readonly MigrationCondition[];
  readonly phase: Phase;
  /** 1 for the one that is next; missing where the queue before it is too long, or it is not in the queue. */
  readonly queuePosition?: number;
}

type Wanted = Omit<IdleStatus, "conditions">;

/** So many have their position shown: it is written again for each of them when the queue moves. */
export const POSITIONS_SHOWN = 100;
/**
 * So many positions at most are written again at once, the nearest ones in any case: in a queue that moves all the time the
 * others are written when they lag most.
 */
export const MOVES_AT_ONCE = 20;
const NEAREST = 10;
/** So many names of migrations at work are told of. */
const NAMES_SHOWN = 3;

/**
 * The migrations that are not being carried out and do not show it yet, the front of the queue first. Those that are over
 * come last: another client may have ended them or changed their spec since, or they ended under an earlier release.
 */
export function idleStatusesOf(queue: MigrationQueue, context: IdleContext): readonly IdleStatus[] {
  const front = frontOf(queue, context);
  const { fresh, moved } = partition([...front.values()].filter(isNews));
  const suspended: Wanted[] = [];
  const behind: Wanted[] = [];
  const far: Wanted[] = [];
  for (const migration of queue) {
    if (isFinal(migration.state) || context.atWork.has(migration.uid) || front.has(migration.uid)) {
      continue;
    }
    const holder = queue.heldBy(migration.resource);
    if (migration.isSuspended) {
      suspended.push({ migration, phase: SUSPENDED });
    } else if (holder !== undefined) {
      behind.push({ migration, phase: heldPhase(holder) });
    } else if (hasNotBegun(migration)) {
      far.push({ migration, phase: FAR });
    }
  }
  const unshown = [...suspended, ...behind, ...far].filter((wanted) => !isShown(wanted));
  return [...moved, ...fresh, ...unshown, ...misreadOf(queue, context)].map((wanted) =>
    withConditions(wanted, context),
  );
}

/** Those that are over and that kstatus would misread. */
function misreadOf(queue: MigrationQueue, { atWork }: IdleContext): readonly Wanted[] {
  const misread = [...queue].filter(
    ({ isShownToKstatus, state, uid }) => !isShownToKstatus && isFinal(state) && !atWork.has(uid),
  );
  return misread.map((migration) => ({ migration, phase: { type: migration.state } }));
}

/** By uid, in their order: those whose position is shown. */
function frontOf(queue: MigrationQueue, context: IdleContext): ReadonlyMap<string, Wanted> {
  const front = new Map<string, Wanted>();
  for (const migration of queue.inOrder()) {
    if (front.size === POSITIONS_SHOWN) {
      break;
    }
    if (!context.atWork.has(migration.uid)) {
      const queuePosition = front.size + 1;
      front.set(migration.uid, { migration, queuePosition, phase: nearPhase(queuePosition, context) });
    }
  }
  return front;
}

/** One that has begun keeps what it says until its turn comes: it is among the first. */
function hasNotBegun({ state }: QueuedMigration): boolean {
  return state !== "Running" && state !== "Waiting";
}

function isNews(wanted: Wanted): boolean {
  return hasNotBegun(wanted.migration) && !isShown(wanted);
}

/** Of those that say already that they are in the queue, only so many at once. */
function partition(front: readonly Wanted[]): { readonly fresh: readonly Wanted[]; readonly moved: readonly Wanted[] } {
  const isQueued = ({ migration: { conditions, state } }: Wanted): boolean =>
    state === "Pending" && conditions.some(({ reason, status }) => reason === "Queued" && status === "True");
  const moved = front.filter(isQueued);
  const lagging = moved.slice(NEAREST).toSorted((a, b) => lagOf(b) - lagOf(a));
  return {
    fresh: front.filter((wanted) => !isQueued(wanted)),
    moved: [...moved.slice(0, NEAREST), ...lagging.slice(0, MOVES_AT_ONCE - NEAREST)],
  };
}

/** By how much the position that one shows is wrong. */
function lagOf({ migration, queuePosition = 0 }: Wanted): number {
  return Math.abs((migration.queuePosition ?? POSITIONS_SHOWN + 1) - queuePosition);
}

const SUSPENDED: Phase = {
  type: "Suspended",
  reason: "SuspendedByUser",
  message: "to continue, set spec.suspend to false",
};

function heldPhase(suspended: string): Phase {
  const message = `migrations/${suspended} of the same resource is suspended; to continue, set its spec.suspend to false`;
  return { type: "Pending", reason: "Queued", message };
}

const FAR: Phase = {
  type: "Pending",
  reason: "Queued",
  message: `more than ${POSITIONS_SHOWN} are before it in the queue`,
};

function nearPhase(position: number, { running }: IdleContext): Phase {
  const more = running.length > NAMES_SHOWN ? ` and ${running.length - NAMES_SHOWN} more` : "";
  const names = running.slice(0, NAMES_SHOWN).join(", ");
  const place = `number ${position} in the queue`;
  return { type: "Pending", reason: "Queued", message: names === "" ? place : `${place}; at work: ${names}${more}` };
}

/** There may be twenty thousand, of which nearly all show it already. */
function isShown({ migration, phase, queuePosition }: Wanted): boolean {
  const shown = migration.conditions.find(({ type }) => type === phase.type);
  const isSame = shown?.status === "True" && shown.reason === phase.reason && shown.message === phase.message;
  const isInPlace = migration.state === phase.type && migration.queuePosition === queuePosition;
  return isSame && isInPlace && migration.isShownToKstatus;
}

function withConditions(wanted: Wanted, { now }: IdleContext): IdleStatus {
  const { migration, phase } = wanted;
  // How a migration ended is never written again, only what follows from it.
  const own = isFinal(migration.state) ? migration.conditions : conditionsIn(phase, migration.conditions, now);
  return { ...wanted, conditions: withKstatus(own) };
}
