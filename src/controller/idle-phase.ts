import { withKstatus } from "../api/kstatus.ts";
import { isFinal, type MigrationCondition } from "../api/migration.ts";
import { type MigrationQueue, type QueuedMigration } from "./migration-queue.ts";
import { conditionsIn, type Phase } from "./migration-status.ts";

/** What goes on in the controller, for those migrations that it does not carry out just now. */
export interface IdleContext {
  /** The uids of the migrations that are being carried out. */
  readonly atWork: ReadonlySet<string>;
  /** RFC 3339. */
  readonly now: string;
}

/** The status that a migration ought to show. */
export interface IdleStatus {
  readonly migration: QueuedMigration;
  readonly conditions: readonly MigrationCondition[];
  readonly phase: Phase;
}

type Wanted = Omit<IdleStatus, "conditions">;

/**
 * The migrations that are not being carried out and do not show it yet. Those that are over come last: another client may have ended
 * them or changed their spec since.
 */
export function idleStatusesOf(queue: MigrationQueue, context: IdleContext): readonly IdleStatus[] {
  const waiting: Wanted[] = [];
  const misread: Wanted[] = [];
  for (const migration of queue) {
    if (context.atWork.has(migration.uid)) {
      continue;
    }
    const holder = queue.heldBy(migration.resource);
    if (isFinal(migration.state)) {
      // kstatus would misread it.
      if (!migration.isShownToKstatus) {
        misread.push({ migration, phase: { type: migration.state } });
      }
    } else if (migration.isSuspended) {
      waiting.push({ migration, phase: SUSPENDED });
    } else if (holder !== undefined) {
      waiting.push({ migration, phase: heldPhase(holder) });
    } else if (hasNotBegun(migration)) {
      waiting.push({ migration, phase: QUEUED });
    }
  }
  // There may be twenty thousand, of which nearly all show it already.
  const unshown = waiting.filter((wanted) => !isShown(wanted));
  return [...unshown, ...misread].map((wanted) => withConditions(wanted, context));
}

/** One that has begun keeps what it says until its turn comes: it is among the first. */
function hasNotBegun({ state }: QueuedMigration): boolean {
  return state !== "Running" && state !== "Waiting";
}

const SUSPENDED: Phase = {
  type: "Suspended",
  reason: "SuspendedByUser",
  message: "to continue, set spec.suspend to false",
};

const QUEUED: Phase = { type: "Pending", reason: "Queued", message: "waits for its turn" };

function heldPhase(suspended: string): Phase {
  const message = `migrations/${suspended} of the same resource is suspended; to continue, set its spec.suspend to false`;
  return { type: "Pending", reason: "Queued", message };
}

function isShown({ migration, phase }: Wanted): boolean {
  const shown = migration.conditions.find(({ type }) => type === phase.type);
  const isSame = shown?.status === "True" && shown.reason === phase.reason && shown.message === phase.message;
  return isSame && migration.state === phase.type && migration.isShownToKstatus;
}

function withConditions(wanted: Wanted, { now }: IdleContext): IdleStatus {
  const { migration, phase } = wanted;
  // How a migration ended is never written again, only what follows from it.
  const own = isFinal(migration.state) ? migration.conditions : conditionsIn(phase, migration.conditions, now);
  return { ...wanted, conditions: withKstatus(own) };
}
