import { storedVersionsOf } from "../../api/crd.ts";
import { holderOf, type Lease } from "../../api/lease.ts";
import {
  CONTROLLER_LEASE,
  hasCondition,
  isFinished,
  type MigrationCondition,
  resourceNameOf,
  type StorageVersionMigration,
  SYSTEM_NAMESPACE,
} from "../../api/migration.ts";
import { FORCE_ANNOTATION } from "../../api/names.ts";
import type { Clock } from "../../clock.ts";
import { type ErrorCode, ERROR_CODES, KsvmError, messageOf } from "../../errors.ts";
import { unlessForbidden } from "../../kube/errors.ts";
import { manifestOf } from "../../migrations/manifest.ts";
import { isDeleted, migrationOf } from "../../migrations/read-migration.ts";
import { type MigrationResult, newTally, type Tally } from "../../migrator/types.ts";
import { isServed } from "../../old/kube/absent.ts";
import type { ApiClient, KubeObject } from "../../old/kube/client.ts";
import { failureKindOf } from "../../old/kube/failure.ts";
import { listNamed } from "../../old/kube/list-named.ts";
import { LEASES, MIGRATIONS, type Resource } from "../../old/kube/resources.ts";
import { watchObject } from "../../old/kube/watch.ts";
import { LoopPace } from "../../old/retry/loop-pace.ts";
import type { Retrier } from "../../old/retry/retrier.ts";
import { leftStoredOf, unprovenOf } from "../../plan/succeeded-work.ts";
import { crdResourceOf, findCrd } from "../../resources/crds.ts";
import { findResource } from "../../resources/served-resource.ts";
import type { Reporter } from "../render/reporter.ts";

interface LookOptions {
  readonly client: ApiClient;
  readonly clock: Clock;
  readonly retrier: Retrier;
}

const POLL_MS = 500;

/**
 * Whether a controller carries out StorageVersionMigrations in this cluster: it has the CRD, and the Lease of the
 * leader is being renewed. That is judged by watching it, never by comparing clocks. A user who may not read the Lease
 * works as where there is none.
 *
 * @throws {ApiError}; {KsvmError} RetryBudgetExceeded.
 */
export async function isControllerRunning(
  { client, clock, retrier }: LookOptions,
  signal: AbortSignal,
): Promise<boolean> {
  const ref = { namespace: SYSTEM_NAMESPACE, name: CONTROLLER_LEASE };
  const read = (): Promise<Lease | undefined> =>
    unlessForbidden(retrier.run(() => client.find<Lease>(LEASES, ref, { signal }), signal));
  const first = await read();
  const isInstalled = (): Promise<boolean> =>
    retrier.run(() => isServed(client.transport, MIGRATIONS, { signal }), signal);
  if (holderOf(first) === "" || !(await isInstalled())) {
    return false;
  }
  const deadline = clock.monotonic() + (first?.spec?.leaseDurationSeconds ?? 15) * 1_000;
  const before = JSON.stringify(first?.spec);
  while (clock.monotonic() < deadline) {
    await clock.sleep(POLL_MS, signal);
    const now = await read();
    if (JSON.stringify(now?.spec) !== before) {
      return holderOf(now) !== "";
    }
  }
  return false;
}

export interface FollowOptions extends LookOptions {
  readonly reporter: Pick<Reporter, "event" | "note">;
  /** Rewrites the objects of a CRD that is clean. */
  readonly force: boolean;
  /** Aborted when the user stops following. The migration continues. */
  readonly signal: AbortSignal;
}

/**
 * Has the controller of the cluster migrate a resource, and follows that to its end.
 * @throws {KsvmError} with the reason where the migration failed, was deleted, can no longer be read, or is no longer
 *   followed
 *   (Interrupted).
 */
export async function followMigration(options: FollowOptions, name: string): Promise<MigrationResult> {
  const { reporter, signal } = options;
  const created = await createMigration(options, name);
  const migration = `migrations/${created.metadata.name}`;
  reporter.note(`created ${migration}; the controller in the cluster carries it out with its own settings`);
  try {
    return await endOf(options, name, await follow(options, created));
  } catch (error) {
    if (signal.aborted) {
      const text = `Interrupted: ${migration} continues in the cluster; to follow it: ksvm status ${created.metadata.name}`;
      throw new KsvmError("Interrupted", text, { cause: error });
    }
    throw error;
  }
}

/**
 * What a migration that has ended comes to. Of a CRD that is in storedVersions and in what ksvm has proven, and not in
 * what some migrator says of its work. A controller of ksvm never finds nothing to do for one that is forced, nor for a
 * built-in resource.
 */
async function endOf(
  { client, force, reporter, retrier, signal }: FollowOptions,
  name: string,
  migration: StorageVersionMigration,
): Promise<MigrationResult> {
  const result = followedResult(migration);
  if (result.outcome === "incomplete") {
    return result;
  }
  const crd = await retrier.run(() => findCrd(client, name, { signal }), signal);
  const isProofDue = force || result.outcome === "migrated";
  const left =
    crd === undefined
      ? unprovenOf(endReasonOf(migration), `ksvm migrate ${result.resource} --standalone`)
      : leftStoredOf(crd, { proven: migration.status?.crd, isProofDue });
  if (left === undefined) {
    return result;
  }
  reporter.note(left.isMigrated ? left.text : `not migrated: ${left.text}`);
  const outcome = left.isMigrated ? result.outcome : "incomplete";
  return { ...result, outcome, ...(crd === undefined ? {} : { storedVersions: storedVersionsOf(crd) }) };
}

async function createMigration(
  { client, force, signal }: FollowOptions,
  name: string,
): Promise<StorageVersionMigration> {
  const annotations = force ? { annotations: { [FORCE_ANNOTATION]: "true" } } : {};
  const object = manifestOf(await resourceOf(client, name, signal), annotations);
  return migrationOf(await client.create<unknown>(MIGRATIONS, object, { signal }));
}

async function resourceOf(client: ApiClient, name: string, signal: AbortSignal): Promise<Resource> {
  const crd = await findCrd(client, name, { signal });
  return crd === undefined ? findResource(client, name, { signal }) : crdResourceOf(crd);
}

async function follow(options: FollowOptions, created: StorageVersionMigration): Promise<StorageVersionMigration> {
  const { reporter, signal } = options;
  let said = "";
  let isTold = false;
  const onWatchFailure = (error: unknown): void => {
    if (!isTold) {
      isTold = true;
      reporter.note(`cannot watch the migration, so it is read every few seconds: ${messageOf(error)}`);
    }
  };
  for await (const migration of changesOf({ ...options, onWatchFailure }, created)) {
    if (isDeleted(migration)) {
      throw deleted(migration.metadata.name);
    }
    const text = phaseTextOf(migration);
    if (text !== undefined && text !== said) {
      reporter.note(text);
      said = text;
    }
    const tally = tallyIn(migration);
    if (tally !== undefined) {
      reporter.event({ type: "progress", tally });
    }
    if (isFinished(migration)) {
      return migration;
    }
  }
  throw signal.reason;
}

interface ChangesOptions extends FollowOptions {
  readonly onWatchFailure: (error: unknown) => void;
}

/** Between two watches, in milliseconds, if each one ends early. */
const MIN_INTERVAL_MS = 1_000;
const MAX_INTERVAL_MS = 10_000;
/**
 * A watch that has to be opened again when it is older than this gives way to a read, in milliseconds: a proxy may keep
 * back what it tells.
 */
const REREAD_MS = 60_000;

/** The migration whenever it changes, until the signal is aborted. An outage of the API server is waited for. */
async function* changesOf(
  options: ChangesOptions,
  created: StorageVersionMigration,
): AsyncGenerator<StorageVersionMigration, void> {
  const { clock, signal } = options;
  const pace = new LoopPace({ clock, minMs: MIN_INTERVAL_MS, maxMs: MAX_INTERVAL_MS });
  let { resourceVersion } = created.metadata;
  for (;;) {
    for await (const migration of watchFrom(options, created, resourceVersion)) {
      pace.reset();
      yield migration;
    }
    await pace.turn(signal);
    const current = await currentOf(options, created);
    if (current !== undefined) {
      ({ resourceVersion } = current);
      yield current.migration;
    }
  }
}

/**
 * The migration whenever it changes, until the watch misses changes, or fails: reads may work all the same, as behind a
 * proxy.
 */
async function* watchFrom(
  { client, clock, onWatchFailure, signal }: ChangesOptions,
  { metadata: { name } }: StorageVersionMigration,
  resourceVersion: string,
): AsyncGenerator<StorageVersionMigration, void> {
  const failed = new AbortController();
  const onFailure = (error: unknown): void => {
    onWatchFailure(error);
    failed.abort();
  };
  const watching = AbortSignal.any([signal, failed.signal]);
  const watch = { name, resourceVersion, signal: watching, clock, onFailure, relistMs: REREAD_MS };
  for await (const event of watchObject<KubeObject>(client.transport, MIGRATIONS, watch)) {
    if (event.type === "DELETED") {
      throw deleted(name);
    }
    if ("object" in event) {
      yield migrationOf(event.object);
    }
  }
}

/** The migration as it is now, and from where to watch on; `undefined` where no answer came. */
async function currentOf(
  { client, signal }: FollowOptions,
  { metadata: { name, uid } }: StorageVersionMigration,
): Promise<{ readonly migration: StorageVersionMigration; readonly resourceVersion: string } | undefined> {
  try {
    const ref = { name };
    const list = await listNamed<KubeObject>(client.transport, MIGRATIONS, ref, { signal });
    if (list.object === undefined) {
      throw deleted(name);
    }
    if (list.object.metadata.uid !== uid) {
      throw new KsvmError("NotFound", `Cannot follow migrations/${name}: it was deleted and created again`);
    }
    return { migration: migrationOf(list.object), resourceVersion: list.resourceVersion };
  } catch (error) {
    signal.throwIfAborted();
    if (failureKindOf(error) === "transient") {
      return undefined;
    }
    throw error;
  }
}

function deleted(name: string): KsvmError {
  return new KsvmError("NotFound", `Cannot follow migrations/${name}: it was deleted`);
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
