import type { ObjectMeta } from "../api/meta.ts";
import { isFinished, isSuspended, resourceNameOf, stateOf, type StorageVersionMigration } from "../api/migration.ts";
import { parseMigration } from "../api/parse-migration.ts";
import { CREATED_BY_INIT, CREATED_BY_LABEL, REENCRYPT_ANNOTATION } from "../api/names.ts";
import { asksForReencryption, type ReencryptionWish } from "../api/reencryption.ts";
import { KsvmError } from "../errors.ts";
import { CONFLICT_PACE, MAX_CONFLICTS } from "../old/freeze/freeze.ts";
import type { Projection } from "../old/json/json-projection.ts";
import { isConflict } from "../old/kube/client.ts";
import { listProjected } from "../old/kube/list-projected.ts";
import { metadataProjection } from "../old/kube/metadata-projection.ts";
import { MIGRATIONS } from "../old/kube/resources.ts";
import { isDeleted } from "../migrations/read-migration.ts";
import { type InitContext, whenServed } from "./when-served.ts";

const PAGE_SIZE = 100;
/** What is read of the migrations that are there. */
const PRESENT_FIELDS: Projection = {
  fields: {
    metadata: metadataProjection({
      deletionTimestamp: "all",
      labels: { fields: { [CREATED_BY_LABEL]: "all" } },
      annotations: { fields: { [REENCRYPT_ANNOTATION]: "all" } },
    }),
    spec: { fields: { resource: "all", suspend: "all" } },
    status: { fields: { conditions: { items: { fields: { type: "all", status: "all" } } } } },
  },
};

/** What is there when the initializer begins. */
interface Present {
  /** Migrations of an earlier one, to be replaced. */
  readonly earlier: readonly ObjectMeta[];
  /** Resources with a migration that is left as it is, so that they get no other one, each with the reason. */
  readonly left: ReadonlyMap<string, string>;
}

/** What an initializer is to create migrations for. */
export interface Discovered {
  /** Names of the resources that get a migration. */
  readonly renewed: ReadonlySet<string>;
  /** Those with resources that could not be read, so that no migration would take the place of an earlier one. */
  readonly unknownGroups: ReadonlySet<string>;
  /** What they re-encrypt with; `undefined` where they do not. */
  readonly reencryption: ReencryptionWish | undefined;
}

/** Which migrations are there, and what is to become of them. */
export async function earlierMigrations(context: InitContext, discovered: Discovered): Promise<Present> {
  const { client, signal } = context;
  const read = async (): Promise<Present> => {
    const earlier: ObjectMeta[] = [];
    const left = new Map<string, string>();
    const list = { limit: PAGE_SIZE, projection: PRESENT_FIELDS, signal };
    for (const item of (await listProjected(client.transport, MIGRATIONS, list)).items) {
      const { object } = parseMigration(item);
      if (object === undefined || isDeleted(object)) {
        continue;
      }
      const reason = reasonToLeave(object, discovered);
      if (reason !== undefined) {
        left.set(resourceNameOf(object.spec.resource), reason);
      } else if (isReplaced(object, discovered)) {
        earlier.push(object.metadata);
      }
    }
    return { earlier, left };
  };
  return whenServed(context, read);
}

/**
 * Why a migration is neither deleted nor another one created beside it: a user stopped it; or it re-encrypts or failed to, and
 * one that knows nothing of the key is not to take its place: its failure may be all that says that the old key is needed. One that is to re-encrypt may wait for one that a user stopped.
 */
function reasonToLeave(migration: StorageVersionMigration, { renewed, reencryption }: Discovered): string | undefined {
  const { metadata, spec } = migration;
  const isReencryption = asksForReencryption(metadata.annotations);
  if (isStopped(migration)) {
    return reencryption === undefined || isReencryption ? "its migration is suspended" : undefined;
  }
  const state = stateOf(migration);
  const isUndone = isReencryption && isOurs(migration) && state !== "Succeeded";
  if (!isUndone || reencryption !== undefined || !renewed.has(resourceNameOf(spec.resource))) {
    return undefined;
  }
  return state === "Failed" ? "its re-encryption failed, which init --force repeats" : "its migration re-encrypts it";
}

function isReplaced(migration: StorageVersionMigration, { renewed, unknownGroups }: Discovered): boolean {
  const { resource } = migration.spec;
  const isKnown = renewed.has(resourceNameOf(resource)) || !unknownGroups.has(resource.group ?? "");
  return isKnown && isOurs(migration) && !isStopped(migration);
}

function isStopped(migration: StorageVersionMigration): boolean {
  return isSuspended(migration) && !isFinished(migration);
}

function isOurs({ metadata }: StorageVersionMigration): boolean {
  return metadata.labels?.[CREATED_BY_LABEL] === CREATED_BY_INIT;
}

/**
 * Deletes the migrations of an earlier initializer. One that was written since it was read is read again: a user may have stopped it.
 * @throws {KsvmError} Conflict where other clients write them again and again.
 */
export async function replaceEarlier(
  context: InitContext,
  discovered: Discovered,
): Promise<Pick<Present, "left"> & { readonly deleted: number }> {
  const pace = context.retrier.pace(CONFLICT_PACE);
  let deleted = 0;
  for (let rounds = 0; rounds <= MAX_CONFLICTS; rounds++) {
    await pace.turn(context.signal);
    const { earlier, left } = await earlierMigrations(context, discovered);
    let undeleted = earlier.length;
    for (const migration of earlier) {
      undeleted -= (await deleteMigration(context, migration)) ? 1 : 0;
    }
    deleted += earlier.length - undeleted;
    if (undeleted === 0) {
      return { deleted, left };
    }
  }
  const text = "Cannot initialize: other clients write the migrations of an earlier init again and again";
  throw new KsvmError("Conflict", text);
}

/** @returns whether it is gone; where not, another client wrote it in between, or deleted it and created it again */
async function deleteMigration(context: InitContext, migration: ObjectMeta): Promise<boolean> {
  const { client, signal } = context;
  const { name, resourceVersion, uid } = migration;
  const options = { preconditions: { uid, resourceVersion }, signal };
  try {
    // Another API server than the one that listed it may answer, which does not serve them yet.
    await whenServed(context, () => client.delete(MIGRATIONS, { name }, options));
    return true;
  } catch (error) {
    if (!isConflict(error)) {
      throw error;
    }
    return false;
  }
}
