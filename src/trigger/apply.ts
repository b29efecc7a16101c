import { MIGRATION_API_VERSION, MIGRATIONS, STORAGE_STATES, type StorageState } from "../api/migration.ts";
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
} from "../api/names.ts";
import type { Client } from "../kube/client.ts";
import { isAbsent } from "../kube/errors.ts";
import { manifestOf } from "../migrations/manifest.ts";
import { migrationOf } from "../migrations/read-migration.ts";
import type { Decision, NewMigration } from "./decide.ts";
import { type MigrationFacts, migrationFactsOf, type MigrationIndex } from "./migration-facts.ts";
import type { Situation } from "./next-status.ts";
import type { StateFacts } from "./state-facts.ts";

/** What {@link apply} works with. */
export interface ApplyContext {
  readonly client: Client;
  readonly index: MigrationIndex;
  /** Milliseconds after which a heartbeat is due although nothing changed. */
  readonly heartbeatMs: number;
  readonly signal: AbortSignal;
}

/**
 * Does what was decided. Migrations that no longer count go first and the new one comes last, so that whatever cuts
 * this short leaves a StorageState that says too much rather than too little.
 *
 * @throws {ApiError} Conflict where the StorageState, or a migration, was written in between: what was decided may be
 *   wrong then, and is decided again
 */
export async function apply(context: ApplyContext, situation: Situation, decision: Decision): Promise<void> {
  const { client, index, signal } = context;
  for (const migration of decision.remove) await remove(context, migration);
  const disowned = new Map<string, MigrationFacts>();
  for (const migration of decision.disown) {
    disowned.set(migration.uid, await annotate(context, migration, null));
  }
  await writeState(context, situation, decision);
  for (const migration of decision.adopt) {
    await annotate(context, disowned.get(migration.uid) ?? migration, situation.observed.agreed ?? null);
  }
  if (decision.create !== undefined) {
    const created = await client.create<unknown>(MIGRATIONS, newMigration(decision.create), { signal });
    index.put(migrationOf(created));
  }
}

/** Deletes the StorageState of a resource that is no more, and the migrations of it. */
export async function forget(
  context: ApplyContext,
  name: string,
  state: StateFacts,
  migrations: readonly MigrationFacts[],
): Promise<void> {
  const { client, signal } = context;
  for (const migration of migrations.filter(({ isOurs }) => isOurs)) await remove(context, migration);
  await client.delete(pathOf(STORAGE_STATES, name), { signal, preconditions: { uid: state.uid } });
}

/** A user may have suspended the migration in between, and the one that replaces it would not be. */
async function remove(
  { client, index, signal }: ApplyContext,
  { name, resourceVersion, uid }: MigrationFacts,
): Promise<void> {
  await client.delete(pathOf(MIGRATIONS, name), { signal, preconditions: { uid, resourceVersion } });
  index.delete(uid);
}

/**
 * Says for which hash a migration is. A resourceVersion goes with it: one that began in between is not taken for one
 * that begins after now.
 *
 * @returns what it is now
 */
async function annotate(
  { client, index, signal }: ApplyContext,
  migration: MigrationFacts,
  hash: string | null,
): Promise<MigrationFacts> {
  const { name, resourceVersion, uid } = migration;
  const body = { metadata: { uid, resourceVersion, annotations: { [HASH_ANNOTATION]: hash } } };
  try {
    const patched = migrationOf(await client.patch(pathOf(MIGRATIONS, name), body, { signal }));
    index.put(patched);
    return migrationFactsOf(patched);
  } catch (error) {
    // One that is gone proves nothing. A conflict is for the caller: an old mark that stays would prove too much.
    if (isAbsent(error, name)) return migration;
    throw error;
  }
}

/** The status in one write that fails if another client wrote since; what is remembered of the CRD after it. */
async function writeState(
  { client, heartbeatMs, signal }: ApplyContext,
  { observed, observedAt, state }: Situation,
  { crdRecord, status }: Decision,
): Promise<void> {
  const { group, name, resource } = observed;
  const path = pathOf(STORAGE_STATES, name);
  let resourceVersion = state?.resourceVersion;
  if (resourceVersion === undefined) {
    const created = await client.create<StorageState>(
      STORAGE_STATES,
      {
        apiVersion: MIGRATION_API_VERSION,
        kind: "StorageState",
        metadata: {
          name,
          annotations: crdRecord === undefined ? {} : { [CRD_ANNOTATION]: crdRecord },
          labels: { [MANAGED_BY_LABEL]: MANAGED_BY },
        },
        spec: { resource: { group, resource } },
      },
      { signal },
    );
    ({ resourceVersion } = created.metadata);
  }
  const isHeartbeatDue = !(Math.abs(observedAt - (state?.heartbeat ?? Number.NaN)) < heartbeatMs);
  if (status !== undefined || isHeartbeatDue) {
    const written: StorageState["status"] = {
      // metav1.Time has no fraction of a second.
      lastHeartbeatTime: `${new Date(observedAt).toISOString().slice(0, 19)}Z`,
      ...(status === undefined
        ? {}
        : { persistedStorageVersionHashes: status.persisted, currentStorageVersionHash: status.current }),
    };
    const body = { metadata: { resourceVersion }, status: written };
    ({ resourceVersion } = (await client.patch<StorageState>(`${path}/status`, body, { signal })).metadata);
  }
  if (crdRecord !== undefined && state !== undefined) {
    const body = { metadata: { resourceVersion, annotations: { [CRD_ANNOTATION]: crdRecord } } };
    await client.patch(path, body, { signal });
  }
}

function newMigration({ attempt, hash, isForced, isLowPriority, resource }: NewMigration): object {
  const annotations = {
    [HASH_ANNOTATION]: hash,
    [ATTEMPT_ANNOTATION]: String(attempt),
    ...(isForced ? { [FORCE_ANNOTATION]: "true" } : {}),
    ...(isLowPriority ? { [PRIORITY_ANNOTATION]: "low" } : {}),
  };
  const labels = { [MANAGED_BY_LABEL]: MANAGED_BY, [CREATED_BY_LABEL]: CREATED_BY_TRIGGER };
  return manifestOf(resource, { labels, annotations });
}

function pathOf(collection: string, name: string): string {
  return `${collection}/${encodeURIComponent(name)}`;
}
