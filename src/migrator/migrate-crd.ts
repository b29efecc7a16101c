import { convergeAll, EpochChanged, epochOf } from "../apiservers/converge.ts";
import { DEFAULT_SETTLE_MS, settleCrds } from "../apiservers/settle.ts";
import { KsvmError, messageOf } from "../errors.ts";
import { chooseGuard, freeze, parseOwner, unfreeze, unfreezeLeftBehind } from "../freeze/freeze.ts";
import { proveFreeze } from "../freeze/prove.ts";
import { CRD_FIELD_MANAGER, freezeLifted, type Guard, MIGRATING, OWNER } from "../freeze/rule.ts";
import { assertMigratable, crdProblem, storedVersionsOwner } from "./crd-state.ts";
import type { Client } from "../kube/client.ts";
import { whose } from "../kube/errors.ts";
import {
  type Crd,
  CRDS,
  isClean,
  type KubeObject,
  METADATA,
  METADATA_LIST,
  type Resource,
  resourceName,
  storageVersion,
} from "../kube/objects.ts";
import { retry } from "../kube/retry.ts";
import { watch } from "../kube/watch.ts";
import { beginsAgain, mayBeginAgain, newRun, pauseMs, rewrite, type Run, yieldToInTree } from "./attempts.ts";
import { DEFAULT_MAX_IN_FLIGHT } from "./limiter.ts";
import { targetOf, tryOneWrite } from "./rewrite.ts";
import { assertRights, rightsForDryRun, rightsForFreeze, rightsForRewrite } from "./rights.ts";
import { checkpointPurpose, DEFAULT_LEASE_NAMESPACE, hasRunLease, type Position, RunLease } from "./run-lease.ts";
import type { MigrateOptions, MigrationEnd, MigrationEvent, MigrationResult } from "./types.ts";

/*
 * The run of a CRD, by the workflow of KEP-2855:
 *
 *  1. Try one write as a dry run.
 *  2. Read the epoch: uid and generation of the CRD.
 *  3. Converge: every API server has observed that generation.
 *  4. Settle: wait until requests of before have ended. Nothing is frozen yet.
 *  5. Freeze: take the Lease of the run, and annotate the CRD with who migrates it.
 *  6. Prove on every API server that the guard denies a change of the storage version.
 *  7. Watermark: what is written after the first list is in the storage version.
 *  8. Rewrite every object below the watermark.
 *  9. Keep a checkpoint in the Lease of the run, from which a later run resumes.
 * 10. Ask every API server once more.
 * 11. Prune storedVersions.
 * 12. Unfreeze, on every way out.
 *
 * Why the prune is safe: it is a compare-and-swap on a read that shows the uid and generation of step 2, so the storage
 * version was the same all the time. Since step 3 every API server writes in it, and since step 4 no earlier write is
 * under way. An API server that starts later reads the CRD from etcd, so that it never knew an earlier spec. So whatever
 * was stored otherwise lies below the watermark, and was rewritten. Step 4 is left out only where the spec has been the
 * same for three hours, by two clocks. Nothing rests on step 10: it finds an API server that had no identity Lease at
 * first and is behind now.
 *
 * What the freeze is for: users get a clear answer instead of a run that begins again, and no two runs work on one CRD.
 * By its owner annotation a run that lost its Lease finds out before it prunes. No safety rests on the guard; a
 * guard that is not proven ends the attempt because users rely on its answer.
 */

/** A CRD that an attempt may freeze: one write was tried, and all that it rests on was read. */
interface Ready {
  readonly run: Run;
  /**
   * The CRD before the wait. Its uid and generation are what the attempt rests on: the generation changes with every
   * change of the spec, so as long as it is the same, the storage version has been the same all the time.
   */
  readonly atStart: Crd;
  readonly guard: Guard;
  /** When it was ready, on the monotonic clock. */
  readonly since: number;
}

/**
 * Migrates CRDs. All of them share the wait, in which nothing is frozen. Then they follow, some at a time, and each ends
 * by itself: one that fails holds up none. A run begins again at step 1 where the CRD changed, and where a webhook or an
 * API server failed: once the others are through it waits without a freeze, and goes on where it was.
 *
 * @returns how each ended, in the order of the names. An interrupted one ends with the reason of the signal.
 */
export async function migrateCrds(
  client: Client,
  names: readonly string[],
  options: MigrateOptions,
): Promise<readonly MigrationEnd[]> {
  const { clock } = client;
  const ends = new Map<string, MigrationEnd>();
  let pending: readonly Run[] = [...new Set(names)].map((name) => newRun(client, name, options));
  // Each has its own share, so that one whose webhook hangs holds up none.
  const { maxInFlight = DEFAULT_MAX_IN_FLIGHT, maxQps = Number.POSITIVE_INFINITY } = options;
  const atOnce = Math.max(1, Math.min(AT_ONCE, pending.length, maxInFlight));
  const share = { ...options, maxInFlight: Math.floor(maxInFlight / atOnce), maxQps: maxQps / atOnce };
  while (pending.length > 0) {
    const again = new Map<Run, number>();
    const begun = clock.monotonic();
    const end = (one: MigrationEnd): void => {
      ends.set(one.name, one);
      options.onEnd?.(one);
    };
    const succeed = ({ name }: Run, result: MigrationResult): void => end({ name, result });
    const failOrBeginAgain = (run: Run, error: unknown): void => {
      if (error instanceof EpochChanged) run.changes++;
      const now = clock.monotonic();
      if (options.signal.aborted || !mayBeginAgain(run, error, now, options.maxIdleMs)) {
        end({ name: run.name, error });
        return;
      }
      again.set(run, now);
      run.emit(beginsAgain(error));
    };

    // 1. and 2. for all of them.
    const prepared = new Map<Run, Ready>();
    await eachOf(pending, atOnce, async (run) => {
      run.progressAt += clock.monotonic() - begun;
      try {
        const found = await prepare(client, run, share);
        if ("outcome" in found) succeed(run, found);
        else prepared.set(run, found);
      } catch (error) {
        failOrBeginAgain(run, error);
      }
    });

    // 3. and 4. Converge and settle: one wait, and nothing is frozen.
    const ready = pending.flatMap((run) => prepared.get(run) ?? []);
    const unsettled = await settleAll(client, ready, options);

    // 5. to 12. Some at a time, since each waits for its guard to come into force.
    await eachOf(ready, atOnce, async (one) => {
      const { run } = one;
      if (unsettled.has(run)) return failOrBeginAgain(run, unsettled.get(run));
      // The wait and the turns of others are no time without progress.
      run.progressAt += clock.monotonic() - one.since;
      try {
        succeed(run, await migrateFrozen(client, one, share));
      } catch (error) {
        failOrBeginAgain(run, error);
      }
    });
    for (const [run, since] of again) run.progressAt += clock.monotonic() - since;
    pending = [...again.keys()];
    const changes = Math.max(0, ...pending.map((run) => run.changes));
    if (pending.length > 0) await clock.sleep(pauseMs(changes), options.signal).catch(() => undefined);
  }
  return [...new Set(names)].map((name) => ends.get(name) ?? { name, error: options.signal.reason });
}

/** How many CRDs are looked at, or migrated, at the same time: each holds two pages of objects. */
export const AT_ONCE = 8;

/** Does the same for each item, `atOnce` at a time. @returns what came of each, in order. @throws what `work` throws */
export async function eachOf<T, R>(
  items: readonly T[],
  atOnce: number,
  work: (item: T) => Promise<R>,
): Promise<readonly R[]> {
  const results: R[] = [];
  // One iterator for all workers: each takes the next item.
  const queue = items.entries();
  const worker = async (): Promise<void> => {
    for (const [index, item] of queue) results[index] = await work(item);
  };
  await Promise.all(Array.from({ length: atOnce }, worker));
  return results;
}

/**
 * 1. Tries one write, before anything is frozen: a webhook that is down and rights that are missing show here.
 * 2. Reads the epoch.
 */
async function prepare(client: Client, run: Run, options: MigrateOptions): Promise<Ready | MigrationResult> {
  const { dryRun = false, force = false, leaseNamespace = DEFAULT_LEASE_NAMESPACE, signal } = options;
  const crd = await readCrd(client, run.name, signal);
  // Whatever comes next takes its time. What a dead run left must not stay meanwhile.
  if (!dryRun && (await unfreezeLeftBehind(client, crd, signal))) run.emit({ type: "unfrozen" });
  run.isDue ||= force || !isClean(crd);
  if (!dryRun) {
    // What another client pruned while a run is half done says nothing about the objects.
    run.isDue ||= await hasRunLease(client, { namespace: leaseNamespace, resource: run.name, signal });
    if (!run.isDue) return { resource: run.name, outcome: "nothing-to-do", ...versionsOf(crd) };
  }
  assertMigratable(crd, crdProblem(crd));
  const target = targetOf(crd);
  if (dryRun) {
    await assertRights(client, run.name, rightsForDryRun(target.resource), signal);
    const tally = await rewrite(client, run, target, options);
    return { resource: run.name, outcome: tally.failed > 0 ? "incomplete" : "dry-run", ...versionsOf(crd), tally };
  }
  await yieldToInTree(client, run, target.resource, options);
  const guard = await assertMayMigrate(client, target.resource, options);
  await tryOneWrite(client, target, signal);
  const atStart = await readCrd(client, run.name, signal);
  assertMigratable(atStart, crdProblem(atStart));
  return { run, atStart, guard, since: client.clock.monotonic() };
}

/** @returns the guard of a run. @throws {KsvmError} Forbidden with every right that the user lacks */
export async function assertMayMigrate(
  client: Client,
  resource: Pick<Resource, "group" | "plural">,
  {
    endpoints,
    leaseNamespace = DEFAULT_LEASE_NAMESPACE,
    signal,
  }: Pick<MigrateOptions, "endpoints" | "leaseNamespace" | "signal">,
): Promise<Guard> {
  const name = resourceName(resource);
  const guard = await chooseGuard(client, name, signal);
  const rights = rightsForRewrite(resource, { leaseNamespace, areServersNamed: endpoints !== undefined });
  await assertRights(client, name, [...rightsForFreeze(name, guard), ...rights], signal);
  return guard;
}

async function readCrd(client: Client, name: string, signal: AbortSignal): Promise<Crd> {
  const crd = await retry(client, () => client.find<Crd>(`${CRDS}/${name}`, { signal }), { signal });
  if (crd !== undefined) return crd;
  throw new KsvmError("ResourceNotFound", `Cannot find "${name}": there is no CustomResourceDefinition of this name`);
}

function versionsOf(crd: Crd): Required<Pick<MigrationResult, "storageVersion" | "storedVersions" | "epoch">> {
  return { storageVersion: storageVersion(crd), storedVersions: crd.status?.storedVersions ?? [], epoch: epochOf(crd) };
}

/**
 * @returns those that are not settled, with the error of each. A CRD that changed begins again, and the others go on.
 */
async function settleAll(
  client: Client,
  ready: readonly Ready[],
  options: MigrateOptions,
): Promise<ReadonlyMap<Run, unknown>> {
  if (ready.length === 0) return new Map();
  const { settleMs = DEFAULT_SETTLE_MS } = options;
  const onEvent = (event: MigrationEvent): void => {
    for (const { run } of ready) run.emit(event);
  };
  const epochs = ready.map(({ atStart }) => atStart);
  try {
    const changed = await settleCrds(client, epochs, { ...options, settleMs, onEvent });
    const unsettled = ready.filter(({ run }) => changed.has(run.name));
    return new Map(unsettled.map(({ run }) => [run, changed.get(run.name)]));
  } catch (error) {
    return new Map(ready.map(({ run }) => [run, error]));
  }
}

/** The freeze could not be lifted, or its policy not be removed. What the run has done stays done. */
export class CleanupFailed extends KsvmError {
  override readonly name = "CleanupFailed";
  readonly result: MigrationResult;

  constructor(message: string, result: MigrationResult) {
    super("CleanupFailed", message);
    this.result = result;
  }
}

/** Steps 5 to 12, by the holder of the Lease. */
async function migrateFrozen(client: Client, ready: Ready, options: MigrateOptions): Promise<MigrationResult> {
  const { emit, identity, name } = ready.run;
  const { leaseNamespace: namespace = DEFAULT_LEASE_NAMESPACE, signal } = options;
  const lease = await RunLease.take(client, { namespace, resource: name, identity, signal });
  const changed = new AbortController();
  let result: MigrationResult;
  let left: string | undefined;
  try {
    result = await migrateHeld(client, ready, options, lease, changed);
  } catch (error) {
    // What ended the attempt explains what failed by it.
    options.signal.throwIfAborted();
    lease.lost.throwIfAborted();
    changed.signal.throwIfAborted();
    throw error;
  } finally {
    // 12. Unfreeze on every way out.
    changed.abort();
    try {
      if (await unfreeze(client, name, identity, ready.guard)) emit({ type: "unfrozen" });
    } catch (error) {
      const kinds = "validatingadmissionpolicybinding,validatingadmissionpolicy";
      const help = ready.guard.kind === "policy" ? `, then kubectl delete ${kinds} ${ready.guard.name}` : "";
      left = `Cannot clean up after the migration of "${name}": ${messageOf(error)}; try: ksvm unfreeze ${name}${help}`;
      emit({ type: "warning", message: left });
    }
    await lease.release();
  }
  if (left !== undefined) throw new CleanupFailed(left, result);
  return result;
}

/** Steps 5 to 11. */
async function migrateHeld(
  client: Client,
  { atStart, guard, run }: Ready,
  options: MigrateOptions,
  lease: RunLease,
  changed: AbortController,
): Promise<MigrationResult> {
  const signal = AbortSignal.any([options.signal, lease.lost, changed.signal]);
  const { identity, name } = run;

  // 5. Freeze the storage version, on a CRD of this epoch.
  const frozen = await freeze(client, atStart, { guard, owner: lease.owner, signal });
  void abortWhenChanged(client, atStart, identity, frozen.metadata.resourceVersion, changed);

  // 6. Prove on every API server that the guard is in force.
  const apiServers = await proveFreeze(client, options, { crdName: name, guard, signal });
  run.emit({ type: "frozen", storageVersion: storageVersion(atStart), guard, apiServers });

  // 7. to 9. Rewrite every object, from where an earlier run of the same epoch and purpose stood.
  const purpose = checkpointPurpose(options, identity);
  const resume = lease.checkpointFor(epochOf(atStart), purpose);
  const assertCurrent = async (): Promise<void> => {
    const crd = await retry(client, () => client.get<KubeObject>(`${CRDS}/${name}`, { accept: METADATA, signal }), {
      signal,
    });
    assertStillOurs(atStart, crd, identity);
  };
  const onPosition = (position: Position): void => {
    lease.checkpoint = { epoch: epochOf(atStart), purpose, ...position };
  };
  const work = { assertCurrent, onPosition, resume };
  const tally = await rewrite(client, run, targetOf(atStart), { ...options, signal }, work);
  if (tally.failed > 0) {
    const now = await retry(client, () => client.find<Crd>(`${CRDS}/${name}`, { signal }), { signal });
    const { storedVersions } = versionsOf(now ?? atStart);
    return { resource: name, outcome: "incomplete", ...versionsOf(atStart), storedVersions, tally };
  }

  // 10. Ask every API server once more, those that joined included.
  await convergeAll(client, options, [atStart], { signal, forMs: 30_000 });

  // 11. Prune. Whoever lifts the freeze afterwards must not cut off the read that shows it.
  const pruning = AbortSignal.any([options.signal, lease.lost]);
  const { pruned, removed } = await prune(client, atStart, identity, pruning);
  const versions = versionsOf(pruned);
  run.emit({ type: "pruned", storedVersions: versions.storedVersions, removed });
  lease.checkpoint = undefined;
  return { resource: name, outcome: "migrated", ...versions, tally };
}

/** @throws where a CRD is not of the epoch that the attempt rests on, whatever the difference */
function assertStillOurs(atStart: Crd, { metadata }: Pick<KubeObject, "metadata">, identity: string): void {
  const { name } = atStart.metadata;
  const { annotations = {}, deletionTimestamp, uid } = metadata;
  if (uid !== atStart.metadata.uid) throw new EpochChanged(name, "the CRD was deleted and created again");
  if (deletionTimestamp !== undefined) throw new EpochChanged(name, "the CRD is being deleted");
  if (epochOf({ metadata }) !== epochOf(atStart)) throw new EpochChanged(name, "the spec of the CRD changed");
  if (annotations[MIGRATING] === undefined) throw freezeLifted(name);
  if (parseOwner(annotations[OWNER])?.identity !== identity) {
    const text = "another run took its migration over, or another client changed the owner of the freeze";
    throw new KsvmError("OwnershipLost", `Cannot continue with "${name}": ${text}; nothing was pruned`);
  }
}

/** Ends an attempt early. Safety does not rest on it: the prune has a precondition. Never throws. */
async function abortWhenChanged(
  client: Client,
  atStart: Crd,
  identity: string,
  resourceVersion: string,
  changed: AbortController,
): Promise<void> {
  const { name } = atStart.metadata;
  const { signal } = changed;
  const query = { fieldSelector: `metadata.name=${name}` };
  const look = (crd: KubeObject): void => {
    try {
      assertStillOurs(atStart, crd, identity);
    } catch (error) {
      changed.abort(error);
    }
  };
  for (let from = resourceVersion; !signal.aborted; ) {
    try {
      for await (const event of watch<KubeObject>(client, CRDS, {
        resourceVersion: from,
        query,
        accept: METADATA,
        signal,
      })) {
        if (event.type === "DELETED") changed.abort(new EpochChanged(name, "the CRD was deleted"));
        else if ("object" in event) look(event.object);
      }
      const listed = await client.list<KubeObject>(CRDS, { query, accept: METADATA_LIST, signal });
      for (const crd of listed.items) look(crd);
      if (listed.items.length === 0) changed.abort(new EpochChanged(name, "the CRD was deleted"));
      from = listed.metadata.resourceVersion;
    } catch {
      // The next one shows what this one would have.
    }
    await client.clock.sleep(1_000, signal).catch(() => undefined);
  }
}

const MAX_CONFLICTS = 20;

/**
 * Sets storedVersions to the storage version alone. A compare-and-swap: its precondition is the resourceVersion of a
 * read that shows the epoch. What another client has pruned to the storage version meanwhile is right by now. An apply,
 * since it makes this run answer for the field: `plan` and `check` doubt what another client wrote.
 *
 * @returns the CRD as it is read back, since a write of status that goes astray answers 200 and does nothing; and the
 * versions that were taken out
 */
async function prune(
  client: Client,
  atStart: Crd,
  identity: string,
  signal: AbortSignal,
): Promise<{ readonly pruned: Crd; readonly removed: readonly string[] }> {
  const { name } = atStart.metadata;
  let removed: readonly string[] = [];
  let isPruned = false;
  for (let conflicts = 0; conflicts < MAX_CONFLICTS; conflicts++) {
    const crd = await readCrd(client, name, signal);
    const isDone = isClean(crd) && isVouchedFor(crd);
    // Whoever lifts the freeze after the prune comes too late to stop it.
    if (isPruned && isDone && epochOf(crd) === epochOf(atStart)) return { pruned: crd, removed };
    assertStillOurs(atStart, crd, identity);
    if (isDone) return { pruned: crd, removed };
    const { storedVersions } = versionsOf(crd);
    if (!isClean(crd)) removed = storedVersions.filter((version) => version !== storageVersion(crd));
    const { resourceVersion, uid } = crd.metadata;
    const body = {
      apiVersion: "apiextensions.k8s.io/v1",
      kind: "CustomResourceDefinition",
      metadata: { name, uid, resourceVersion },
      status: { storedVersions: [storageVersion(atStart)] },
    };
    const options = { fieldManager: CRD_FIELD_MANAGER, signal };
    try {
      await retry(client, () => client.apply(`${CRDS}/${name}/status`, body, options), { signal });
      isPruned = true;
    } catch (error) {
      // Another client wrote the CRD in between, or an earlier try arrived: the next read shows it.
      if (whose(error) !== "conflict") throw error;
      await client.clock.sleep(50 * (conflicts + client.random()), signal);
    }
  }
  const text = "other clients kept writing the CRD; every object is rewritten; run again to prune";
  throw new KsvmError("PruneFailed", `Cannot prune storedVersions of "${name}": ${text}`);
}

/** Whether ksvm answers for storedVersions. Where another client has emptied managedFields, nobody can. */
function isVouchedFor({ metadata }: Crd): boolean {
  return storedVersionsOwner({ metadata }) === CRD_FIELD_MANAGER || (metadata.managedFields ?? []).length === 0;
}
