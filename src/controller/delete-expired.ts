import type { Logger } from "pino";
import type { Clock } from "../clock.ts";
import { messageOf } from "../errors.ts";
import { isNotFound } from "../kube/absent.ts";
import { type ApiClient, isConflict } from "../kube/client.ts";
import { MIGRATIONS } from "../kube/resources.ts";
import { LoopPace } from "../retry/loop-pace.ts";
import type { QueuedMigration } from "./migration-queue.ts";

/** Milliseconds between two rounds, and deletions of one round. */
const INTERVAL_MS = 10_000;
const MAX_DELETIONS = 50;
const DELETE_TIMEOUT_MS = 10_000;

/** What {@link deleteExpired} needs. */
export interface ExpiryOptions {
  readonly client: ApiClient;
  readonly clock: Clock;
  readonly logger: Logger;
  /** Throws where this replica does not lead any more. */
  readonly assertLeading: () => void;
  /** All migrations that are not being carried out. */
  readonly idle: () => Iterable<QueuedMigration>;
}

/**
 * Deletes finished migrations whose time has come, until the signal is aborted. One that was written since it was read stays
 * until it is read again. What cannot be deleted is tried again in a later round.
 */
export async function deleteExpired(options: ExpiryOptions, signal: AbortSignal): Promise<void> {
  const { clock, idle, logger } = options;
  const pace = new LoopPace({ clock, minMs: INTERVAL_MS });
  while (!signal.aborted) {
    try {
      await pace.turn(signal);
      const now = clock.now();
      const due = [...idle()].filter(({ expiresAt = Number.POSITIVE_INFINITY }) => expiresAt <= now);
      for (const migration of due.slice(0, MAX_DELETIONS)) {
        await deleteOne(options, migration, signal);
      }
    } catch (error) {
      if (!signal.aborted) {
        logger.warn({ reason: messageOf(error) }, "Cannot delete a migration that has expired; trying again");
      }
    }
  }
}

async function deleteOne(
  { assertLeading, client, clock, logger }: ExpiryOptions,
  { name, resource, resourceVersion, uid }: QueuedMigration,
  signal: AbortSignal,
): Promise<void> {
  assertLeading();
  const within = AbortSignal.any([signal, clock.timeout(DELETE_TIMEOUT_MS)]);
  try {
    await client.delete(MIGRATIONS, { name }, { preconditions: { uid, resourceVersion }, signal: within });
    logger.info({ migration: name, resource }, "Deleted a finished migration: its ttlSecondsAfterFinished is over");
  } catch (error) {
    if (!isConflict(error) && !isNotFound(error)) {
      throw error;
    }
  }
}
