import type { Logger } from "pino";
import type { Clock } from "../clock.ts";
import { messageOf } from "../errors.ts";
import { isNotFound } from "../old/kube/absent.ts";
import { type ApiClient, isConflict } from "../old/kube/client.ts";
import { MIGRATIONS } from "../old/kube/resources.ts";
import { LoopPace } from "../old/retry/loop-pace.ts";
import { type Due, dueOf } from "./expiry.ts";
import type { QueuedMigration } from "./migration-queue.ts";

/** Milliseconds between two rounds, deletions of one round, and failures that end one. */
const INTERVAL_MS = 10_000;
const MAX_DELETIONS = 50;
const MAX_FAILURES = 5;
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
 * until it is read again. What cannot be deleted is tried again in a later round, after all others.
 */
export async function deleteExpired(options: ExpiryOptions, signal: AbortSignal): Promise<void> {
  const { clock, finishedLimit: limit, idle, logger } = options;
  const pace = new LoopPace({ clock, minMs: INTERVAL_MS });
  let refused: ReadonlySet<string> = new Set();
  while (!signal.aborted) {
    try {
      await pace.turn(signal);
      const due = dueOf(idle(), { limit, now: clock.now() });
      refused = await deleteSome(options, { due, refused }, signal);
    } catch (error) {
      if (!signal.aborted) {
        logger.warn({ reason: messageOf(error) }, "Cannot look for finished migrations to delete; trying again");
      }
    }
  }
}

interface Round {
  readonly due: readonly Due<QueuedMigration>[];
  /**
   * The uids of those that could not be deleted in earlier rounds, the one that was last tried at the end: a policy of the cluster may
   * keep each of them for all time.
   */
  readonly refused: ReadonlySet<string>;
}

/** @returns the uids of those that could not be deleted so far, and are still due */
async function deleteSome(
  options: ExpiryOptions,
  { due, refused }: Round,
  signal: AbortSignal,
): Promise<ReadonlySet<string>> {
  const { assertLeading, logger } = options;
  const byUid = new Map(due.map((one) => [one.migration.uid, one]));
  const left = new Set([...refused].filter((uid) => byUid.has(uid)));
  const first = [...byUid.keys()].filter((uid) => !left.has(uid));
  let failures = 0;
  for (const uid of [...first, ...left].slice(0, MAX_DELETIONS)) {
    const one = byUid.get(uid);
    if (one === undefined || failures >= MAX_FAILURES) {
      break;
    }
    assertLeading();
    left.delete(uid);
    try {
      await deleteOne(options, one, signal);
    } catch (error) {
      signal.throwIfAborted();
      const { name } = one.migration;
      logger.warn({ migration: name, reason: messageOf(error) }, "Cannot delete a finished migration; trying again");
      left.add(uid);
      failures++;
    }
  }
  return left;
}

const REASONS: Readonly<Record<Due<QueuedMigration>["why"], string>> = {
  expired: "its ttlSecondsAfterFinished is over",
  "beyond the limit": "--finished-migrations-limit newer ones of the resource have finished",
};

async function deleteOne(
  { client, clock, logger }: ExpiryOptions,
  { migration: { name, resource, resourceVersion, uid }, why }: Due<QueuedMigration>,
  signal: AbortSignal,
): Promise<void> {
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
