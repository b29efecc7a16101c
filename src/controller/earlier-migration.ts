import type { MigrationCounts, StorageVersionMigration } from "../api/migration.ts";
import { isNewer } from "../api/resource-version.ts";

/**
 * Whether a migration, as a read shows it, is as it was before something that its leader wrote, as after etcd was restored from a backup. Where etcd
 * was restored with `--bump-revision` and another client wrote the migration since, its resourceVersion is higher than before. But the last page of a
 * run writes its counts once all of it is done, so a backup from before that has lower ones.
 * @param before as the leader last read or wrote it
 */
export function isEarlier(found: StorageVersionMigration, before: StorageVersionMigration): boolean {
  const isOlder = isNewer(before.metadata.resourceVersion, found.metadata.resourceVersion);
  return isOlder || doneOf(found.status?.counts) < doneOf(before.status?.counts);
}

function doneOf({ migrated, skipped, failed }: MigrationCounts = { migrated: 0, skipped: 0, failed: 0 }): number {
  return migrated + skipped + failed;
}
