import { hasCondition, isFinished, type StorageVersionMigration } from "../api/migration.ts";
import { CREATED_BY_LABEL, CREATED_BY_TRIGGER } from "../api/names.ts";

/**
 * When a migration is to be deleted by its `spec.ttlSecondsAfterFinished`, in milliseconds since the Unix epoch; `undefined`
 * where never. Those of the trigger stay: it counts its attempts by them, and removes them itself. So does one whose freeze
 * another client lifted: by it alone the trigger knows that it may not freeze the CRD again.
 */
export function expiryOf(migration: StorageVersionMigration): number | undefined {
  const { metadata, spec, status = {} } = migration;
  const { ttlSecondsAfterFinished: ttl } = spec;
  const isOfTrigger = metadata.labels?.[CREATED_BY_LABEL] === CREATED_BY_TRIGGER;
  if (ttl === undefined || isOfTrigger || !isFinished(migration) || isBreakGlass(migration)) {
    return undefined;
  }
  const endedAt = Date.parse(status.completionTime ?? "");
  return Number.isNaN(endedAt) ? undefined : endedAt + ttl * 1_000;
}

function isBreakGlass(migration: StorageVersionMigration): boolean {
  const { conditions = [] } = migration.status ?? {};
  return hasCondition(migration, "Failed") && conditions.some(({ reason }) => reason === "FreezeLifted");
}
