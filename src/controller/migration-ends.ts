import { stateOf, type StorageVersionMigration } from "../api/migration.ts";
import { KsvmError } from "../errors.ts";

/** Ends a run whose StorageVersionMigration is there no more. */
export class MigrationDeleted extends KsvmError {
  override readonly name = "MigrationDeleted";

  constructor(migration: string) {
    super("NotFound", `Cannot continue: StorageVersionMigration "${migration}" was deleted`);
  }
}

/** Ends a run whose user wants it stopped. It is carried out later, where it left off. */
export class MigrationSuspended extends KsvmError {
  override readonly name = "MigrationSuspended";

  constructor(migration: string) {
    super("Interrupted", `Cannot continue: StorageVersionMigration "${migration}" was suspended`);
  }
}

/** Ends a run whose StorageVersionMigration is over already: another client, or another leader, has said how it ended. */
export class MigrationOver extends KsvmError {
  override readonly name = "MigrationOver";

  constructor(migration: StorageVersionMigration) {
    super(
      "Conflict",
      `Cannot continue: StorageVersionMigration "${migration.metadata.name}" is ${stateOf(migration)} already`,
    );
  }
}
