import {
  hasCondition,
  type MigrationCondition,
  resourceNameOf,
  type StorageVersionMigration,
} from "../../api/migration.ts";
import { type ErrorCode, ERROR_CODES, KsvmError } from "../../errors.ts";
import type { Counts } from "../../old/migrator/rewrite/counts.ts";
import type { MigrationResult } from "../../old/migrator/result.ts";

/** What an unfinished migration does, in words; `undefined` if no controller has set a condition yet. */
export function phaseTextOf(migration: StorageVersionMigration): string | undefined {
  const type = (["Suspended", "Waiting", "Running", "Pending"] as const).find((candidate) =>
    hasCondition(migration, candidate),
  );
  if (type === undefined) {
    return undefined;
  }
  const { message, reason } = conditionOf(migration, type);
  const why = message ?? reason;
  return why === undefined ? type.toLowerCase() : `${type.toLowerCase()}: ${why}`;
}

/** The counts in a status as the progress of a run has them; `undefined` if there are none yet. */
export function shownCounts({ status }: StorageVersionMigration): Counts | undefined {
  if (status?.counts === undefined) {
    return undefined;
  }
  const { migrated, skipped, failed, remaining = 0 } = status.counts;
  const done = migrated + skipped + failed;
  return { done, migrated, current: skipped, newer: 0, gone: 0, failed, changed: 0, total: done + remaining };
}

/**
 * The result that a finished migration stands for.
 * @throws {KsvmError} with the code in the condition's reason, where it failed as a whole.
 */
export function followedResult(migration: StorageVersionMigration): MigrationResult {
  const resource = resourceNameOf(migration.spec.resource);
  const counts = shownCounts(migration);
  const failures = migration.status?.failures ?? [];
  const result = { resource, ...(counts === undefined ? {} : { counts }), failures, changedObjects: [] };
  if (hasCondition(migration, "Succeeded")) {
    return { ...result, outcome: endReasonOf(migration) === "NothingToDo" ? "nothing-to-do" : "migrated" };
  }
  if (failures.length > 0) {
    return { ...result, outcome: "incomplete" };
  }
  const { reason, message } = conditionOf(migration, "Failed");
  throw new KsvmError(codeIn(reason), message ?? `Cannot migrate "${resource}": ${reason ?? "no reason was given"}`);
}

/** Why a migration that has succeeded says so, in one word. */
export function endReasonOf(migration: StorageVersionMigration): string | undefined {
  return conditionOf(migration, "Succeeded").reason;
}

function conditionOf({ status }: StorageVersionMigration, type: string): Partial<MigrationCondition> {
  return status?.conditions?.find((condition) => condition.type === type) ?? {};
}

function codeIn(reason: string | undefined): ErrorCode {
  return ERROR_CODES.find((code) => code === reason) ?? "Internal";
}
