import type { MigrationCondition } from "../api/migration.ts";
import { heldBy, isOver, queueOf, type QueuedMigration } from "./migration-queue.ts";
import { conditionsIn, type Phase } from "./migration-status.ts";
import type { SuspendMark } from "../suspend/suspend-mark.ts";

/** What goes on in the controller, for those migrations that it does not carry out just now. */
export interface IdleContext {
  /** By uid: the names of the migrations that are being carried out. */
  readonly atWork: ReadonlyMap<string, string>;
  /** Of those the ones that have a slot. */
  readonly running: readonly string[];
  readonly mark: SuspendMark | undefined;
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

/** So many have their position shown: it is written again for each of them whenever the queue moves. */
export const POSITIONS_SHOWN = 100;
/** So many names of migrations at work are told of. */
const NAMES_SHOWN = 3;

/** The migrations that nobody carries out and that do not show it yet, the front of the queue first. */
export function idleStatusesOf(migrations: Iterable<QueuedMigration>, context: IdleContext): readonly IdleStatus[] {
  const suspendable = [...migrations];
  const idle = suspendable.filter((migration) => !isOver(migration) && !context.atWork.has(migration.uid));
  const isStopped = ({ isSuspended }: QueuedMigration): boolean => isSuspended || context.mark !== undefined;
  const suspended: readonly Wanted[] = idle
    .filter(isStopped)
    .map((migration) => ({ migration, phase: suspendedPhase(migration, context) }));
  const held = heldBy(suspendable);
  const isHeld = ({ resource }: QueuedMigration): boolean => held.has(resource);
  const waiting = queueOf(idle.filter((migration) => !isStopped(migration)));
  const behind: readonly Wanted[] = waiting
    .filter(isHeld)
    .map((migration) => ({ migration, phase: heldPhase(held.get(migration.resource) ?? "") }));
  const queue = waiting.filter((migration) => !isHeld(migration));
  // One that has begun keeps what it says until its turn comes: it is among the first.
  const queued: readonly Wanted[] = queue.flatMap((migration, index) =>
    migration.state === "Running" || migration.state === "Waiting"
      ? []
      : [{ migration, ...queuedPhase(index + 1, context) }],
  );
  return [...suspended, ...behind, ...queued]
    .filter((status) => !isShown(status))
    .map((status) => withConditions(status, context));
}

function suspendedPhase({ isSuspended, name }: QueuedMigration, { mark }: IdleContext): Phase {
  if (isSuspended) {
    return { type: "Suspended", reason: "SuspendedByUser", message: `go on with: ksvm resume ${name}` };
  }
  const by = mark?.by === undefined ? "" : ` by ${mark.by}`;
  const message = `all migrations are suspended since ${mark?.since ?? ""}${by}; go on with: ksvm resume --all`;
  return { type: "Suspended", reason: "AllSuspended", message };
}

function heldPhase(suspended: string): Phase {
  const message = `migrations/${suspended} of the same resource is suspended; go on with: ksvm resume ${suspended}`;
  return { type: "Pending", reason: "Queued", message };
}

function queuedPhase(position: number, { running }: IdleContext): Pick<IdleStatus, "phase" | "queuePosition"> {
  const isNear = position <= POSITIONS_SHOWN;
  const place = isNear ? `number ${position} in the queue` : `more than ${POSITIONS_SHOWN} are before it in the queue`;
  const more = running.length > NAMES_SHOWN ? ` and ${running.length - NAMES_SHOWN} more` : "";
  const names = running.slice(0, NAMES_SHOWN).join(", ");
  const message = isNear && names !== "" ? `${place}; at work: ${names}${more}` : place;
  return { phase: { type: "Pending", reason: "Queued", message }, ...(isNear ? { queuePosition: position } : {}) };
}

/** There may be twenty thousand, of which nearly all show it already. */
function isShown({ migration, phase, queuePosition }: Wanted): boolean {
  const shown = migration.conditions.find(({ type }) => type === phase.type);
  const isSame = shown?.status === "True" && shown.reason === phase.reason && shown.message === phase.message;
  return isSame && migration.state === phase.type && migration.queuePosition === queuePosition;
}

function withConditions(wanted: Wanted, { now }: IdleContext): IdleStatus {
  return { ...wanted, conditions: conditionsIn(wanted.phase, wanted.migration.conditions, now) };
}
