import type { StorageVersionMigration } from "../api/migration.ts";
import { parseMigration } from "../api/parse-migration.ts";
import { KsvmError } from "../errors.ts";

/** A StorageVersionMigration that is there and cannot be read. */
export class MigrationUnreadable extends KsvmError {
  override readonly name = "MigrationUnreadable";

  constructor(migration: string, problem: string) {
    super("ApiRequestFailed", `Cannot read StorageVersionMigration "${migration}": ${problem}`);
  }
}

/**
 * The migration that an API server answered with.
 * @throws {MigrationUnreadable}
 */
export function migrationOf(value: unknown): StorageVersionMigration {
  const { object, unreadable } = parseMigration(value);
  if (object === undefined) {
    throw new MigrationUnreadable(unreadable.name, unreadable.problem);
  }
  return object;
}

/** Whether it was deleted: a finalizer may keep one that was for weeks. No controller carries it out. */
export function isDeleted({ metadata }: StorageVersionMigration): boolean {
  return metadata.deletionTimestamp !== undefined;
}

/** Whether it is the one with this uid, and was not deleted. */
export function isThere(found: StorageVersionMigration | undefined, uid: string): found is StorageVersionMigration {
  return found !== undefined && found.metadata.uid === uid && !isDeleted(found);
}
