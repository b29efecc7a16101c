import { MIGRATION_API_VERSION, stateOf, type StorageState } from "../api/migration.ts";
import {
  ATTEMPT_ANNOTATION,
  CRD_ANNOTATION,
  CREATED_BY_LABEL,
  CREATED_BY_TRIGGER,
  FORCE_ANNOTATION,
  HASH_ANNOTATION,
  MANAGED_BY,
  MANAGED_BY_LABEL,
  PRIORITY_ANNOTATION,
  STORAGE_VERSION_ANNOTATION,
  STORED_VERSIONS_ANNOTATION,
} from "../api/names.ts";
import { parseMigration } from "../api/parse-migration.ts";
import type { CallOptions } from "../old/kube/call-options.ts";
import { type ApiClient, isConflict, type NewObject } from "../old/kube/client.ts";
import { isAbsent } from "../old/kube/absent.ts";
import { MERGE_PATCH, MIGRATIONS, STORAGE_STATES } from "../old/kube/resources.ts";
import { manifestOf } from "../migrations/manifest.ts";
import { isThere, migrationOf } from "../migrations/read-migration.ts";
import { StartAgain } from "../old/retry/start-again.ts";
import { hasNotFlipped, storedVersionsMarkOf } from "./crd-facts.ts";
import type { Decision, NewMigration } from "./decide.ts";
import { type MigrationFacts, migrationFactsOf } from "./migration-facts.ts";
import type { MigrationIndex } from "./migration-index.ts";
import { isFor, type Situation, type StateFacts } from "./next-status.ts";

/** What {@link apply} works with. */
export interface ApplyContext extends CallOptions {
  readonly client: ApiClient;
  readonly index: MigrationIndex;
  /** Milliseconds after which a heartbeat is due although nothing changed. */
  readonly heartbeatMs: number;
}

/**
 * Does what was decided. Migrations that no longer count go first and the new one comes last, so that whatever cuts this
 * short leaves a StorageState that says too much rather than too little.
 * @returns the heartbeat that the StorageState has then, in milliseconds since the Unix epoch
 * @throws {ApiError} Conflict where the StorageState, or a migration to mark, was written in between: what was decided may
 *   be wrong then, and is decided again; {ApiError | TransportError}.
 */
export async function apply(context: ApplyContext, situation: Situation, decision: Decision): Promise<number> {
  if (decision.cause === "completed" || mayRestOnMigrations(situation)) {
    await confirmEnds(context, situation);
  }
  for (const migration of decision.remove) {
    await remove(context, migration);
  }
  const disowned = new Map<string, MigrationFacts>();
  for (const migration of decision.disown) {
    disowned.set(migration.uid, await annotate(context, migration, { [HASH_ANNOTATION]: null }));
  }
  const heartbeat = await writeState(context, situation, decision);
  for (const migration of decision.adopt) {
    await annotate(context, disowned.get(migration.uid) ?? migration, marksOf(situation));
  }
  if (decision.create !== undefined) {
    const { signal } = context;
    const created = await context.client.create<unknown>(MIGRATIONS, newMigrationOf(decision.create), { signal });
    const { object } = parseMigration(created);
    if (object !== undefined) {
      context.index.put(object);
    }
  }
  return heartbeat;
}

/** Deletes the StorageState of a CRD that is no more, and the migrations of it. */
export async function forget(
  context: ApplyContext,
  name: string,
  { state, migrations }: { readonly state: StateFacts; readonly migrations: readonly MigrationFacts[] },
): Promise<void> {
  const { client, signal } = context;
  for (const migration of migrations.filter(({ isOurs }) => isOurs)) {
    await remove(context, migration);
  }
  await client.delete(STORAGE_STATES, { name }, { signal, preconditions: { uid: state.uid } });
}

/** Whether the record of a clean CRD does not show that its storage version stayed the same: then a migration has to. */
function mayRestOnMigrations({ observed: { crd }, state }: Situation): boolean {
  return crd?.isClean === true && state !== undefined && !hasNotFlipped(state.crd, crd);
}

/**
 * Reads the migrations that a completion, or a record of a clean CRD, rests on. After a restore of etcd one that was over may be gone or running
 * again, and the watch tells nothing until etcd has got as far as it was.
 * @throws {StartAgain} where one is not over.
 */
async function confirmEnds(
  { client, index, signal }: ApplyContext,
  { migrations, observed }: Situation,
): Promise<void> {
  for (const one of migrations.filter(({ state }) => state === "Succeeded").filter((each) => isFor(each, observed))) {
    const answer = await client.find<unknown>(MIGRATIONS, one, { signal });
    const found = answer === undefined ? undefined : migrationOf(answer);
    if (!isThere(found, one.uid) || stateOf(found) !== "Succeeded") {
      index.correct(one, found);
      throw new StartAgain("Conflict", `StorageVersionMigration "${one.name}" is not as it was; looking again`);
    }
  }
}

/** A resourceVersion goes with it: a user may have suspended the migration in between, and the one that replaces it would not be. */
async function remove(context: ApplyContext, migration: MigrationFacts): Promise<void> {
  const { client, index, signal } = context;
  const { name, resourceVersion, uid } = migration;
  try {
    await client.delete(MIGRATIONS, { name }, { signal, preconditions: { uid, resourceVersion } });
  } catch (error) {
    if (isConflict(error)) {
      await readAgain(context, migration);
    }
    throw error;
  }
  index.delete(migration);
}

/**
 * A resourceVersion goes with it: a migration that began in between is not taken for one that begins after now.
 * @returns what it is now
 */
async function annotate(
  { client, index, signal }: ApplyContext,
  migration: MigrationFacts,
  annotations: Readonly<Record<string, string | null>>,
): Promise<MigrationFacts> {
  const { name, resourceVersion, uid } = migration;
  const body = { metadata: { uid, resourceVersion, annotations } };
  try {
    const patch = { type: MERGE_PATCH, body };
    const patched = migrationOf(await client.patch<unknown>(MIGRATIONS, { name }, patch, { signal }));
    index.put(patched);
    return migrationFactsOf(patched);
  } catch (error) {
    if (isConflict(error)) {
      await readAgain({ client, index, signal }, migration);
    }
    // One that is gone proves nothing. A conflict is for the caller: an old mark that stays would prove too much.
    if (!isAbsent(error, name)) {
      throw error;
    }
    return migration;
  }
}

/** Reads what a migration is now, by a patch that changes nothing, so that the next look does not wait for the watch. */
async function readAgain(
  { client, index, signal }: Omit<ApplyContext, "heartbeatMs">,
  { name, uid }: MigrationFacts,
): Promise<void> {
  const patch = { type: MERGE_PATCH, body: { metadata: { uid } } };
  await client.patch<unknown>(MIGRATIONS, { name }, patch, { signal }).then(
    // After a restore of etcd it may be older than what is known.
    (found) => index.correct({ uid }, migrationOf(found)),
    // What is not read now arrives with the watch.
    () => undefined,
  );
}

function marksOf({ observed: { agreed, crd, storageVersion } }: Situation): Readonly<Record<string, string | null>> {
  return {
    [HASH_ANNOTATION]: agreed ?? null,
    [STORED_VERSIONS_ANNOTATION]: crd === undefined ? null : storedVersionsMarkOf(crd),
    [STORAGE_VERSION_ANNOTATION]: storageVersion ?? null,
  };
}

/** The status in one write that fails if another client wrote since; what is remembered of the CRD after it. @returns as {@link apply} */
async function writeState(context: ApplyContext, situation: Situation, decision: Decision): Promise<number> {
  const { client, signal } = context;
  const { name } = situation.observed;
  let resourceVersion = situation.state?.resourceVersion ?? (await createState(context, situation, decision));
  let heartbeat = situation.state?.heartbeat ?? Number.NaN;
  if (decision.status !== undefined || isHeartbeatDue(context, situation)) {
    const body = { metadata: { resourceVersion }, status: statusOf(situation, decision) };
    heartbeat = Date.parse(body.status.lastHeartbeatTime);
    const patch = { type: MERGE_PATCH, body };
    const options = { subresource: "status", signal };
    ({ resourceVersion } = (await client.patch<StorageState>(STORAGE_STATES, { name }, patch, options)).metadata);
  }
  if (decision.crdRecord !== undefined && situation.state !== undefined) {
    const body = { metadata: { resourceVersion, annotations: { [CRD_ANNOTATION]: decision.crdRecord } } };
    await client.patch(STORAGE_STATES, { name }, { type: MERGE_PATCH, body }, { signal });
  }
  return heartbeat;
}

async function createState({ client, signal }: ApplyContext, { observed }: Situation, { crdRecord }: Decision) {
  const { group, name, resource } = observed;
  const annotations = crdRecord === undefined ? {} : { [CRD_ANNOTATION]: crdRecord };
  const state = {
    apiVersion: MIGRATION_API_VERSION,
    kind: "StorageState",
    metadata: { name, annotations, labels: { [MANAGED_BY_LABEL]: MANAGED_BY } },
    spec: { resource: { group, resource } },
  };
  return (await client.create<StorageState>(STORAGE_STATES, state, { signal })).metadata.resourceVersion;
}

function isHeartbeatDue({ heartbeatMs }: ApplyContext, { now, state }: Situation): boolean {
  return !(Math.abs(now - (state?.heartbeat ?? Number.NaN)) < heartbeatMs);
}

type Status = NonNullable<StorageState["status"]>;

function statusOf({ now }: Situation, { status }: Decision): Status & Required<Pick<Status, "lastHeartbeatTime">> {
  // The API server takes no fraction of a second that it would not show: metav1.Time has none.
  const lastHeartbeatTime = `${new Date(now).toISOString().slice(0, 19)}Z`;
  return status === undefined
    ? { lastHeartbeatTime }
    : {
        persistedStorageVersionHashes: status.persisted,
        currentStorageVersionHash: status.current,
        lastHeartbeatTime,
      };
}

function newMigrationOf(migration: NewMigration): NewObject {
  const { attempt, hash, isForced, isLowPriority, resource, storageVersion, storedVersions } = migration;
  const annotations = {
    [HASH_ANNOTATION]: hash,
    [ATTEMPT_ANNOTATION]: String(attempt),
    ...(isForced ? { [FORCE_ANNOTATION]: "true" } : {}),
    ...(isLowPriority ? { [PRIORITY_ANNOTATION]: "low" } : {}),
    ...(storedVersions === undefined ? {} : { [STORED_VERSIONS_ANNOTATION]: storedVersions }),
    ...(storageVersion === undefined ? {} : { [STORAGE_VERSION_ANNOTATION]: storageVersion }),
  };
  const labels = { [MANAGED_BY_LABEL]: MANAGED_BY, [CREATED_BY_LABEL]: CREATED_BY_TRIGGER };
  return manifestOf(resource, { labels, annotations });
}
