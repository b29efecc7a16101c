import { hasCondition, isFinished, type StorageVersionMigration } from "../api/migration.ts";
import { CREATED_BY_LABEL, CREATED_BY_TRIGGER } from "../api/names.ts";

/** The end of a migration that may be deleted. */
export interface PastEnd {
  /** Milliseconds since the Unix epoch. */
  readonly endedAt: number;
  /** When it is to be deleted by its `spec.ttlSecondsAfterFinished`, in milliseconds since the Unix epoch; missing where never. */
  readonly expiresAt?: number;
}

/**
 * The end of a finished migration; `undefined` where it is not finished, or stays in any case. Those of the trigger do: it counts its
 * attempts by them, and removes them itself. So does one whose freeze another client lifted: by it alone the trigger knows that it
 * may not freeze the CRD again. And one that is deleted already: a finalizer may keep it for weeks.
 */
export function pastEndOf(migration: StorageVersionMigration): PastEnd | undefined {
  const { metadata, spec, status = {} } = migration;
  const { ttlSecondsAfterFinished: ttl } = spec;
  const isOfTrigger = metadata.labels?.[CREATED_BY_LABEL] === CREATED_BY_TRIGGER;
  const endedAt = Date.parse(status.completionTime ?? "");
  const isDeleted = metadata.deletionTimestamp !== undefined;
  if (isDeleted || isOfTrigger || !isFinished(migration) || isBreakGlass(migration) || Number.isNaN(endedAt)) {
    return undefined;
  }
  return { endedAt, ...(ttl === undefined ? {} : { expiresAt: endedAt + ttl * 1_000 }) };
}

function isBreakGlass(migration: StorageVersionMigration): boolean {
  const { conditions = [] } = migration.status ?? {};
  return hasCondition(migration, "Failed") && conditions.some(({ reason }) => reason === "FreezeLifted");
}

/** What is to be deleted, and why. */
export interface Due<Migration> {
  readonly migration: Migration;
  readonly why: "expired" | "beyond the limit";
}

/**
 * The migrations that are to be deleted: those whose time is over, and of each resource those that ended before the newest `limit` ones.
 * @param limit how many of each resource stay; 0 keeps all of them
 * @param now milliseconds since the Unix epoch
 */
export function dueOf<Migration extends { readonly resource: string; readonly pastEnd?: PastEnd }>(
  migrations: Iterable<Migration>,
  { limit, now }: { readonly limit: number; readonly now: number },
): readonly Due<Migration>[] {
  const due: Due<Migration>[] = [];
  const rest = new Map<string, { migration: Migration; endedAt: number }[]>();
  for (const migration of migrations) {
    const { pastEnd, resource } = migration;
    if (pastEnd === undefined) {
      continue;
    }
    const { endedAt, expiresAt = Number.POSITIVE_INFINITY } = pastEnd;
    if (expiresAt <= now) {
      due.push({ migration, why: "expired" });
    } else if (limit > 0) {
      const ended = rest.get(resource) ?? [];
      ended.push({ migration, endedAt });
      rest.set(resource, ended);
    }
  }
  for (const ended of rest.values()) {
    const beyond = ended.toSorted((a, b) => b.endedAt - a.endedAt).slice(limit);
    due.push(...beyond.map(({ migration }) => ({ migration, why: "beyond the limit" as const })));
  }
  return due;
}
