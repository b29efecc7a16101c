import type { MigrationCounts, StorageVersionMigration } from "../api/migration.ts";
import { isNewer } from "../api/resource-version.ts";

/**
 * How far a migration is, as its leader last read or wrote it, or as a write of it says whose answer was lost. Where a read shows less, etcd was restored from
 * a backup. Its resourceVersion may be higher than before all the same: where etcd was restored with `--bump-revision`, and another client wrote the migration
 * since. But the last page of a run writes its counts once all of it is done, so a backup from before that has lower ones.
 */
export class KnownProgress {
  #resourceVersion = "";
  /** The least that a read can show. A run that begins again counts from the start. */
  #done = 0;

  constructor(migration: StorageVersionMigration) {
    this.is(migration);
  }

  /** An answer shows the migration as it is. */
  is({ metadata, status }: StorageVersionMigration): void {
    this.#resourceVersion = metadata.resourceVersion;
    this.#done = doneOf(status?.counts);
  }

  /** This is sent, and may be written although no answer says so. @param body of a merge patch */
  sending(body: object): void {
    const { status } = body as Pick<StorageVersionMigration, "status">;
    this.#done = Math.min(this.#done, status?.counts === undefined ? this.#done : doneOf(status.counts));
  }

  /** Whether a read shows the migration as it was before. */
  isPast({ metadata, status }: StorageVersionMigration): boolean {
    return isNewer(this.#resourceVersion, metadata.resourceVersion) || doneOf(status?.counts) < this.#done;
  }
}

function doneOf({ migrated, skipped, failed }: MigrationCounts = { migrated: 0, skipped: 0, failed: 0 }): number {
  return migrated + skipped + failed;
}
