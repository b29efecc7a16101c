import type { Logger } from "pino";
import { withKstatus } from "../api/kstatus.ts";
import { isFinal, type MigrationCondition, type StorageVersionMigration } from "../api/migration.ts";
import type { Clock } from "../clock.ts";
import { messageOf } from "../errors.ts";
import type { Client } from "../kube/client.ts";
import { whose } from "../kube/errors.ts";
import { migrationOf } from "../migrations/read-migration.ts";
import type { Waker } from "../waker.ts";
import type { MigrationQueue, QueuedMigration } from "./migration-queue.ts";
import { migrationPath } from "./migration-record.ts";
import { conditionsIn, type Phase } from "./migration-status.ts";

// The status of the migrations that are not being carried out just now.

/** The status that a migration ought to show. */
export interface IdleStatus {
  readonly migration: QueuedMigration;
  readonly conditions: readonly MigrationCondition[];
  readonly phase: Phase;
}

const SUSPENDED: Phase = {
  type: "Suspended",
  reason: "SuspendedByUser",
  message: "to continue, set spec.suspend to false",
};

/**
 * The migrations that are not being carried out and do not show it yet. Those that are over come last: another client
 * may have ended them or changed their spec since, so that kstatus would misread them.
 *
 * @param atWork the uids of the migrations that are being carried out
 * @param now RFC 3339
 */
export function idleStatuses(
  queue: MigrationQueue,
  { atWork, now }: { readonly atWork: ReadonlySet<string>; readonly now: string },
): readonly IdleStatus[] {
  const held = queue.held();
  const waiting: IdleStatus[] = [];
  const misread: IdleStatus[] = [];
  for (const migration of queue) {
    const { conditions, isShownToKstatus, isSuspended, resource, state, uid } = migration;
    if (atWork.has(uid)) continue;
    if (isFinal(state)) {
      // How a migration ended is never written again, only what follows from it.
      if (!isShownToKstatus) misread.push({ migration, conditions: withKstatus(conditions), phase: { type: state } });
      continue;
    }
    const holder = held.get(resource);
    // One that has begun keeps what it says until its turn comes: it is among the first.
    const hasBegun = state === "Running" || state === "Waiting";
    const phase = isSuspended ? SUSPENDED : holder !== undefined || !hasBegun ? queuedPhase(holder) : undefined;
    // There may be twenty thousand, of which nearly all show it already.
    if (phase === undefined || isShown(migration, phase)) continue;
    waiting.push({ migration, conditions: withKstatus(conditionsIn(phase, conditions, now)), phase });
  }
  return [...waiting, ...misread];
}

/** @param holder the name of a suspended migration of the same resource */
function queuedPhase(holder: string | undefined): Phase {
  const message =
    holder === undefined
      ? "waits for its turn"
      : `migrations/${holder} of the same resource is suspended; to continue, set its spec.suspend to false`;
  return { type: "Pending", reason: "Queued", message };
}

function isShown({ conditions, isShownToKstatus, state }: QueuedMigration, phase: Phase): boolean {
  const shown = conditions.find(({ type }) => type === phase.type);
  const isSame = shown?.status === "True" && shown.reason === phase.reason && shown.message === phase.message;
  return isSame && state === phase.type && isShownToKstatus;
}

/** What {@link keepIdleStatuses} needs. */
export interface IdleOptions {
  readonly client: Client;
  /** What it waits by. */
  readonly clock: Clock;
  readonly logger: Logger;
  /** Throws where this replica does not lead any more. */
  readonly assertLeading: () => void;
  /** What is to be written now. */
  readonly due: () => readonly IdleStatus[];
  /** Woken whenever that may have changed. */
  readonly changed: Waker;
  /** Told of what was written, ahead of the watch. */
  readonly onWritten: (migration: StorageVersionMigration) => void;
}

/** Milliseconds between two rounds, and writes of one round: what the API server answers to them begins the next one. */
const MIN_INTERVAL_MS = 2_000;
const MAX_WRITES = 200;
const WRITE_TIMEOUT_MS = 10_000;
/** Without a change, in milliseconds: where something was refused, and where nothing was. */
const AGAIN_MS = 60_000;
const NOTHING_MS = 600_000;

/**
 * Writes the status of migrations that are not being carried out, until the signal is aborted: that they wait or are
 * suspended, and for kstatus what those that are over do not show. What is refused of one keeps no other from being
 * shown; it is tried again with the next change or after a minute.
 */
export async function keepIdleStatuses(options: IdleOptions, signal: AbortSignal): Promise<void> {
  const { assertLeading, changed, client, clock, due, logger, onWritten } = options;
  /** By uid: why a status cannot be written, which is said once. */
  const told = new Map<string, string>();
  while (!signal.aborted) {
    changed.begin();
    const statuses = due();
    const uids = new Set(statuses.map(({ migration }) => migration.uid));
    for (const uid of [...told.keys()].filter((one) => !uids.has(one))) told.delete(uid);
    const isTold = ({ migration }: IdleStatus): boolean => told.has(migration.uid);
    const inTurn = [...statuses.filter((one) => !isTold(one)), ...statuses.filter(isTold)].slice(0, MAX_WRITES);
    if (inTurn.length < statuses.length) changed.wake();
    for (const status of inTurn) {
      const { generation, name, resourceVersion, uid } = status.migration;
      if (signal.aborted) break;
      // One that was written since, or that has begun, says by a conflict that this is out of date.
      const observed = generation === undefined ? {} : { observedGeneration: generation };
      const body = { metadata: { uid, resourceVersion }, status: { ...observed, conditions: status.conditions } };
      try {
        assertLeading();
        const limits = { signal, timeoutMs: WRITE_TIMEOUT_MS };
        onWritten(migrationOf(await client.patch<unknown>(`${migrationPath(name)}/status`, body, limits)));
        told.delete(uid);
        logWritten(logger, status);
      } catch (error) {
        const kind = whose(error);
        if (signal.aborted || kind === "conflict" || kind === "gone") continue;
        const reason = messageOf(error);
        const level = told.get(uid) === reason ? "debug" : "warn";
        logger[level]({ migration: name, reason }, "Cannot write the status of a migration; trying again");
        told.set(uid, reason);
        if (kind === "object" || kind === "webhook") continue;
        changed.wake();
        break;
      }
    }
    await changed.wait(told.size > 0 ? AGAIN_MS : NOTHING_MS, clock, signal).catch(() => undefined);
    await clock.sleep(MIN_INTERVAL_MS, signal).catch(() => undefined);
  }
}

function logWritten(logger: Logger, { migration, phase }: IdleStatus): void {
  const { conditions, name, resource, state } = migration;
  const facts = { migration: name, resource };
  if (isFinal(phase.type)) {
    logger.debug(facts, "Wrote for kstatus how a migration ended");
    return;
  }
  const isNew = state !== phase.type || conditions.length === 0;
  const what = phase.type === "Suspended" ? "A migration is suspended" : "A migration is in the queue";
  logger[isNew ? "info" : "debug"]({ ...facts, reason: phase.message }, what);
}
