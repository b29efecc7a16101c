import { isDeepStrictEqual } from "node:util";
import type { StorageVersionMigration } from "../api/migration.ts";
import { FORCE_ANNOTATION, REENCRYPT_ANNOTATION } from "../api/names.ts";
import { type ReencryptionWish, reencryptionWishOf } from "../api/reencryption.ts";
import { KsvmError } from "../errors.ts";

/** What the annotations of a migration ask of its runs. */
export interface RunWish {
  /** Every object is written again, also where the CRD is clean. A re-encryption does that by itself. */
  readonly force: boolean;
  /** Missing where it does not re-encrypt. */
  readonly reencryption?: ReencryptionWish;
}

/** @throws {KsvmError} AnnotationInvalid */
export function runWishOf({ metadata: { annotations } }: Pick<StorageVersionMigration, "metadata">): RunWish {
  const reencryption = reencryptionWishOf(annotations);
  const force = annotations?.[FORCE_ANNOTATION] === "true" || reencryption !== undefined;
  return reencryption === undefined ? { force } : { force, reencryption };
}

/**
 * To be checked with the write that says how a migration ended: a user who asks for more while a run goes on must not read that it
 * succeeded. One who no longer asks for force gets more than that.
 * @param done what its run was asked for
 * @throws {KsvmError} Conflict: the migration begins again.
 */
export function assertStillWanted(migration: Pick<StorageVersionMigration, "metadata">, done: RunWish): void {
  const now = runWishOf(migration);
  const changed = [
    ...(isDeepStrictEqual(now.reencryption, done.reencryption) ? [] : [REENCRYPT_ANNOTATION]),
    ...(now.force && !done.force ? [FORCE_ANNOTATION] : []),
  ];
  const [annotation] = changed;
  if (annotation !== undefined) {
    const text = `its annotation ${annotation} was changed during the run; it begins again`;
    throw new KsvmError("Conflict", `Cannot end StorageVersionMigration "${migration.metadata.name}": ${text}`);
  }
}
