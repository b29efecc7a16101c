import { type CustomResourceDefinition, specKeyOf } from "../../../src/api/crd.ts";
import { hasCondition, resourceNameOf, type StorageVersionMigration } from "../../../src/api/migration.ts";
import { reencryptionWishOf } from "../../../src/api/reencryption.ts";

/** Whether a migration says that every object of a CRD as it is now is stored in its storage version, so that others may prune the CRD. */
export function provesMigrated(migration: StorageVersionMigration, { metadata }: CustomResourceDefinition): boolean {
  const isOfCrd = resourceNameOf(migration.spec.resource) === metadata.name;
  const isMigrated = hasCondition(migration, "Succeeded") && migration.status?.crd === specKeyOf(metadata);
  return isOfCrd && isMigrated && reencryptionWishOf(migration.metadata.annotations) === undefined;
}
