import type { Logger } from "pino";
import type { Clock } from "../clock.ts";
import { messageOf } from "../errors.ts";
import { isNotFound } from "../kube/absent.ts";
import { type ApiClient, isConflict } from "../kube/client.ts";
import { MIGRATIONS } from "../kube/resources.ts";
import { LoopPace } from "../retry/loop-pace.ts";
import { type Due, dueOf } from "./expiry.ts";
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
  /** How many finished migrations of each resource stay; 0 keeps all of them. */
  readonly finishedLimit: number;
  /** All migrations that are not being carried out. */
  readonly idle: () => Iterable<QueuedMigration>;
}

/**
 * Deletes finished migrations whose time has come, or of which there are too many, until the signal is aborted. One that was written since it was read stays
 * until it is read again. What cannot be deleted is tried again in a later round.
 */
export async function deleteExpired(options: ExpiryOptions, signal: AbortSignal): Promise<void> {
  const { clock, finishedLimit: limit, idle, logger } = options;
  const pace = new LoopPace({ clock, minMs: INTERVAL_MS });
  while (!signal.aborted) {
    try {
      await pace.turn(signal);
      for (const due of dueOf(idle(), { limit, now: clock.now() }).slice(0, MAX_DELETIONS)) {
        await deleteOne(options, due, signal);
      }
    } catch (error) {
      if (!signal.aborted) {
        logger.warn({ reason: messageOf(error) }, "Cannot delete a finished migration; trying again");
      }
    }
  }
}

const REASONS: Readonly<Record<Due<QueuedMigration>["why"], string>> = {
  expired: "its ttlSecondsAfterFinished is over",
  "beyond the limit": "--finished-migrations-limit newer ones of the resource have finished",
};

async function deleteOne(
  { assertLeading, client, clock, logger }: ExpiryOptions,
  { migration: { name, resource, resourceVersion, uid }, why }: Due<QueuedMigration>,
  signal: AbortSignal,
): Promise<void> {
  assertLeading();
  const within = AbortSignal.any([signal, clock.timeout(DELETE_TIMEOUT_MS)]);
  try {
    await client.delete(MIGRATIONS, { name }, { preconditions: { uid, resourceVersion }, signal: within });
    logger.info({ migration: name, resource, reason: REASONS[why] }, "Deleted a finished migration");
  } catch (error) {
    if (!isConflict(error) && !isNotFound(error)) {
      throw error;
    }
  }
}
