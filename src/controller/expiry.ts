import type { Logger } from "pino";
import type { Clock } from "../clock.ts";
import { messageOf } from "../errors.ts";
import type { Client } from "../kube/client.ts";
import { whose } from "../kube/errors.ts";
import type { QueuedMigration } from "./migration-queue.ts";
import { migrationPath } from "./migration-record.ts";

/** What is to be deleted, and why. */
interface Due {
  readonly migration: QueuedMigration;
  readonly why: string;
}

/**
 * The migrations that are to be deleted: those whose time is over, and of each resource those that ended before the
 * newest `limit` ones.
 *
 * @param limit how many of each resource stay; 0 keeps all of them
 * @param now milliseconds since the Unix epoch
 */
export function dueOf(
  migrations: Iterable<QueuedMigration>,
  { limit, now }: { readonly limit: number; readonly now: number },
): readonly Due[] {
  const due: Due[] = [];
  const rest = new Map<string, { migration: QueuedMigration; endedAt: number }[]>();
  for (const migration of migrations) {
    const { pastEnd, resource } = migration;
    if (pastEnd === undefined) continue;
    const { endedAt, expiresAt = Number.POSITIVE_INFINITY } = pastEnd;
    if (expiresAt <= now) due.push({ migration, why: "its ttlSecondsAfterFinished is over" });
    else if (limit > 0) {
      const ended = rest.get(resource) ?? [];
      ended.push({ migration, endedAt });
      rest.set(resource, ended);
    }
  }
  for (const ended of rest.values()) {
    for (const { migration } of ended.toSorted((a, b) => b.endedAt - a.endedAt).slice(limit)) {
      due.push({ migration, why: "--finished-migrations-limit newer ones of the resource have finished" });
    }
  }
  return due;
}

/** Milliseconds between two rounds, deletions of one round, and failures that end one. */
const INTERVAL_MS = 10_000;
const MAX_DELETIONS = 50;
const MAX_FAILURES = 5;
const DELETE_TIMEOUT_MS = 10_000;

/** What {@link deleteExpired} needs. */
export interface ExpiryOptions {
  readonly client: Client;
  /** What it waits by. */
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
 * Deletes finished migrations whose time has come, or of which there are too many, until the signal is aborted. One that
 * was written since it was read stays until it is read again. What cannot be deleted is tried again in a later round,
 * after all others: a policy of the cluster may keep it for all time.
 */
export async function deleteExpired(options: ExpiryOptions, signal: AbortSignal): Promise<void> {
  const { assertLeading, client, clock, finishedLimit: limit, idle, logger } = options;
  /** The uids of those that could not be deleted, the one that was last tried at the end. */
  let refused: readonly string[] = [];
  while (!signal.aborted) {
    const due = new Map(dueOf(idle(), { limit, now: clock.now() }).map((one) => [one.migration.uid, one]));
    refused = refused.filter((uid) => due.has(uid));
    const others = [...due.keys()].filter((uid) => !refused.includes(uid));
    let failures = 0;
    for (const uid of [...others, ...refused].slice(0, MAX_DELETIONS)) {
      const one = due.get(uid);
      if (signal.aborted || one === undefined || failures === MAX_FAILURES) break;
      const { name, resource, resourceVersion } = one.migration;
      const facts = { migration: name, resource };
      refused = refused.filter((other) => other !== uid);
      try {
        assertLeading();
        const preconditions = { uid, resourceVersion };
        await client.delete(migrationPath(name), { preconditions, signal, timeoutMs: DELETE_TIMEOUT_MS });
        logger.info({ ...facts, reason: one.why }, "Deleted a finished migration");
      } catch (error) {
        // It was written since it was read.
        if (signal.aborted || whose(error) === "conflict") continue;
        failures++;
        refused = [...refused, uid];
        logger.warn({ ...facts, reason: messageOf(error) }, "Cannot delete a finished migration; trying again");
      }
    }
    await clock.sleep(INTERVAL_MS, signal).catch(() => undefined);
  }
}
