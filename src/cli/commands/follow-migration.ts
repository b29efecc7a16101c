import {
  CONTROLLER_LEASE,
  type GroupVersionResource,
  hasCondition,
  isFinished,
  MIGRATION_API_VERSION,
  type MigrationCondition,
  MIGRATIONS,
  resourceNameOf,
  type StorageVersionMigration,
  SYSTEM_NAMESPACE,
} from "../../api/migration.ts";
import { FORCE_ANNOTATION } from "../../api/names.ts";
import { discover } from "../../apiservers/converge.ts";
import { type ErrorCode, ERROR_CODES, KsvmError } from "../../errors.ts";
import type { Client } from "../../kube/client.ts";
import { unlessForbidden } from "../../kube/errors.ts";
import { type Crd, CRDS, type Lease, LEASES, storageVersion } from "../../kube/objects.ts";
import { retry } from "../../kube/retry.ts";
import { manifestOf } from "../../migrations/manifest.ts";
import { isDeleted, migrationOf } from "../../migrations/read-migration.ts";
import { type MigrationResult, newTally, type Tally } from "../../migrator/types.ts";
import { leftStoredOf, unprovenOf } from "./succeeded-work.ts";
import { findResource } from "../../resources/discover.ts";
import type { Reporter } from "../render/reporter.ts";

const POLL_MS = 500;

/**
 * Whether a controller carries out StorageVersionMigrations in this cluster: it has the CRD, and the Lease of the
 * leader is being renewed. That is judged by watching it, never by comparing clocks. A user who may not read the Lease
 * works as where there is none.
 *
 * @throws {ApiError}
 */
export async function isControllerRunning(client: Client, signal: AbortSignal): Promise<boolean> {
  const { clock } = client;
  const path = `${LEASES}/${SYSTEM_NAMESPACE}/leases/${CONTROLLER_LEASE}`;
  const read = (): Promise<Lease | undefined> =>
    retry(client, () => unlessForbidden(client.find<Lease>(path, { signal })), { signal });
  const first = await read();
  if (!first?.spec?.holderIdentity) return false;
  const [group = "", version = ""] = MIGRATION_API_VERSION.split("/");
  const served = await retry(client, () => discover(client, { group, version }, { signal }), { signal });
  if (!served.some(({ name }) => name === "storageversionmigrations")) return false;
  const deadline = clock.monotonic() + (first.spec.leaseDurationSeconds ?? 15) * 1_000;
  const before = JSON.stringify(first.spec);
  while (clock.monotonic() < deadline) {
    await clock.sleep(POLL_MS, signal);
    const now = await read();
    if (JSON.stringify(now?.spec) !== before) return Boolean(now?.spec?.holderIdentity);
  }
  return false;
}

interface FollowOptions {
  readonly reporter: Pick<Reporter, "event" | "note">;
  /** Rewrites the objects of a CRD that is clean. */
  readonly force: boolean;
  /** Aborted when the user stops following. The migration continues. */
  readonly signal: AbortSignal;
}

/**
 * Has the controller of the cluster migrate a resource, and follows that to its end.
 * @throws {KsvmError} with the reason where the migration failed, was deleted, can no longer be read, or is no longer
 *   followed (Interrupted)
 */
export async function followMigration(client: Client, name: string, options: FollowOptions): Promise<MigrationResult> {
  const { force, reporter, signal } = options;
  const annotations = force ? { annotations: { [FORCE_ANNOTATION]: "true" } } : {};
  const manifest = manifestOf(await resourceOf(client, name, signal), annotations);
  // Not tried again: where an answer was lost, there would be two of them.
  const created = migrationOf(await client.create<unknown>(MIGRATIONS, manifest, { signal }));
  const migration = `migrations/${created.metadata.name}`;
  reporter.note(`created ${migration}; the controller in the cluster carries it out with its own settings`);
  try {
    return await endOf(client, name, options, await follow(client, options, created));
  } catch (error) {
    if (signal.aborted) {
      const how = `to follow it: ksvm status ${created.metadata.name}`;
      const text = `Interrupted: ${migration} continues in the cluster; ${how}`;
      throw new KsvmError("Interrupted", text, { cause: error });
    }
    throw error;
  }
}

/** What the migration names. The controller looks for itself which version it uses. */
async function resourceOf(client: Client, name: string, signal: AbortSignal): Promise<Required<GroupVersionResource>> {
  const crd = await findCrd(client, name, signal);
  if (crd === undefined) return findResource(client, name, signal);
  const { group, names, versions } = crd.spec;
  const served = versions.filter((version) => version.served).map((version) => version.name);
  const storage = storageVersion(crd);
  const version = served.includes(storage) ? storage : served[0];
  if (version === undefined) {
    const text = `Cannot migrate "${name}": the CRD serves no version; set served: true on one of them first`;
    throw new KsvmError("ResourceNotMigratable", text);
  }
  return { group, version, resource: names.plural };
}

/** The CRD of a resource; `undefined` where there is none. A name without a group is never a CRD's. */
async function findCrd(client: Client, name: string, signal: AbortSignal): Promise<Crd | undefined> {
  if (!name.includes(".")) return undefined;
  return retry(client, () => client.find<Crd>(`${CRDS}/${encodeURIComponent(name)}`, { signal }), { signal });
}

/**
 * What a migration that has ended comes to. Of a CRD that is in storedVersions and in what ksvm has proven, and not in
 * what some migrator says of its work. A controller of ksvm never finds nothing to do for one that is forced, nor for a
 * built-in resource.
 */
async function endOf(
  client: Client,
  name: string,
  { force, reporter, signal }: FollowOptions,
  migration: StorageVersionMigration,
): Promise<MigrationResult> {
  const result = followedResult(migration);
  if (result.outcome === "incomplete") return result;
  const crd = await findCrd(client, name, signal);
  const isProofDue = force || result.outcome === "migrated";
  const left =
    crd === undefined
      ? unprovenOf(endReasonOf(migration), `ksvm migrate ${result.resource} --standalone`)
      : leftStoredOf(crd, { proven: migration.status?.crd, isProofDue });
  if (left === undefined) return result;
  reporter.note(left.isMigrated ? left.text : `not migrated: ${left.text}`);
  const outcome = left.isMigrated ? result.outcome : "incomplete";
  return { ...result, outcome, ...(crd === undefined ? {} : { storedVersions: crd.status?.storedVersions ?? [] }) };
}

/** Reads the migration again and again until it has ended, and tells what changes. An outage is waited for. */
async function follow(
  client: Client,
  { reporter, signal }: FollowOptions,
  created: StorageVersionMigration,
): Promise<StorageVersionMigration> {
  const { name, uid } = created.metadata;
  const path = `${MIGRATIONS}/${encodeURIComponent(name)}`;
  const limits = { signal, forMs: Number.POSITIVE_INFINITY };
  for (let migration = created, said = ""; ; ) {
    const text = phaseTextOf(migration) ?? said;
    if (text !== said) reporter.note(text);
    said = text;
    const tally = tallyIn(migration);
    if (tally !== undefined) reporter.event({ type: "progress", tally });
    if (isFinished(migration)) return migration;

    await client.clock.sleep(POLL_MS, signal);
    const found = await retry(client, () => client.find<unknown>(path, { signal }), limits);
    const now = found === undefined ? undefined : migrationOf(found);
    if (now === undefined || isDeleted(now)) {
      throw new KsvmError("NotFound", `Cannot follow migrations/${name}: it was deleted`);
    }
    if (now.metadata.uid !== uid) {
      throw new KsvmError("NotFound", `Cannot follow migrations/${name}: it was deleted and created again`);
    }
    migration = now;
  }
}

/** What an unfinished migration does, in words; `undefined` if no controller has set a condition yet. */
export function phaseTextOf(migration: StorageVersionMigration): string | undefined {
  const type = (["Suspended", "Waiting", "Running", "Pending"] as const).find((candidate) =>
    hasCondition(migration, candidate),
  );
  if (type === undefined) {
    return undefined;
  }
  const { message, reason } = conditionOf(migration, type);
  const why = message ?? reason;
  return why === undefined ? type.toLowerCase() : `${type.toLowerCase()}: ${why}`;
}

/** The counts in a status as a run has them; `undefined` if there are none yet. */
export function tallyIn({ status }: StorageVersionMigration): Tally | undefined {
  if (status?.counts === undefined) {
    return undefined;
  }
  const { migrated: rewritten, skipped: current, failed, remaining = 0 } = status.counts;
  const total = rewritten + current + failed + remaining;
  return { ...newTally(), total, rewritten, current, failed, failures: [...(status.failures ?? [])] };
}

/**
 * The result that a finished migration stands for.
 * @throws {KsvmError} with the code in the condition's reason, where it failed as a whole.
 */
export function followedResult(migration: StorageVersionMigration): MigrationResult {
  const resource = resourceNameOf(migration.spec.resource);
  const failures = migration.status?.failures ?? [];
  const tally = tallyIn(migration);
  const result = { resource, ...(tally === undefined ? {} : { tally }) };
  if (hasCondition(migration, "Succeeded")) {
    return { ...result, outcome: endReasonOf(migration) === "NothingToDo" ? "nothing-to-do" : "migrated" };
  }
  if (failures.length > 0) {
    // Another migrator counts nothing.
    const named = { ...newTally(), failed: failures.length, failures: [...failures] };
    return { resource, outcome: "incomplete", tally: tally ?? named };
  }
  const { reason, message } = conditionOf(migration, "Failed");
  throw new KsvmError(codeIn(reason), message ?? `Cannot migrate "${resource}": ${reason ?? "no reason was given"}`);
}

/** Why a migration that has succeeded says so, in one word. */
function endReasonOf(migration: StorageVersionMigration): string | undefined {
  return conditionOf(migration, "Succeeded").reason;
}

function conditionOf({ status }: StorageVersionMigration, type: string): Partial<MigrationCondition> {
  return status?.conditions?.find((condition) => condition.type === type) ?? {};
}

function codeIn(reason: string | undefined): ErrorCode {
  return ERROR_CODES.find((code) => code === reason) ?? "Internal";
}
