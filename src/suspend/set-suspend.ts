import { isFinished, isSuspended, resourceNameOf, type StorageVersionMigration } from "../api/migration.ts";
import { parseMigration } from "../api/parse-migration.ts";
import { KsvmError } from "../errors.ts";
import { isAbsent } from "../kube/absent.ts";
import type { CallOptions } from "../kube/call-options.ts";
import { type ApiClient, isConflict } from "../kube/client.ts";
import { listProjected } from "../kube/list-projected.ts";
import { MERGE_PATCH, MIGRATIONS } from "../kube/resources.ts";
import { MIGRATION_FIELDS } from "../migrations/migration-fields.ts";
import { isDeleted } from "../migrations/read-migration.ts";

const PAGE_SIZE = 100;

/**
 * The migrations that are not finished and that a name stands for: the one of this name, or those of the resource
 * (`plural.group`). Of each there is what {@link MIGRATION_FIELDS} keeps.
 * @param name all of them where it is missing
 * @throws {ApiError | TransportError}; {KsvmError} ResourceNotFound where there is none.
 */
export async function findUnfinished(
  client: ApiClient,
  name: string | undefined,
  options: CallOptions = {},
): Promise<readonly StorageVersionMigration[]> {
  const list = { limit: PAGE_SIZE, projection: MIGRATION_FIELDS, ...options };
  const parsed = (await listProjected(client.transport, MIGRATIONS, list)).items.map(parseMigration);
  const found = parsed
    .flatMap(({ object }) => object ?? [])
    .filter((migration) => !isFinished(migration) && !isDeleted(migration) && isNamed(migration, name));
  if (found.length === 0 && name !== undefined) {
    const unreadable = parsed.flatMap((one) => one.unreadable ?? []).filter((one) => one.name === name);
    const why = unreadable.map(({ problem }) => `; migrations/${name} is left out: ${problem}`).join("");
    throw new KsvmError(
      "ResourceNotFound",
      `Cannot find a migration of "${name}" that is not finished${why}; ksvm suspend --all also covers those that come later`,
    );
  }
  return found;
}

function isNamed({ metadata, spec }: StorageVersionMigration, name: string | undefined): boolean {
  return name === undefined || metadata.name === name || resourceNameOf(spec.resource) === name;
}

/**
 * Writes `spec.suspend`.
 * @returns whether that changed anything; `false` also for one that is gone or has finished in between
 * @throws {ApiError | TransportError}
 */
export async function setSuspend(
  client: ApiClient,
  { migration, suspend }: { readonly migration: StorageVersionMigration; readonly suspend: boolean },
  { signal }: CallOptions = {},
): Promise<boolean> {
  if (isSuspended(migration) === suspend) {
    return false;
  }
  const { name, uid } = migration.metadata;
  // The uid alone: the controller writes to it all the time, and of this field there is no other writer to lose to.
  const body = { metadata: { uid }, spec: { suspend } };
  try {
    await client.patch(MIGRATIONS, { name }, { type: MERGE_PATCH, body }, { signal });
    return true;
  } catch (error) {
    if (isConflict(error) || isAbsent(error, name)) {
      return false;
    }
    throw error;
  }
}
