import { askAll, EpochChanged } from "../apiservers/converge.ts";
import { ApiServerMissing } from "../apiservers/find.ts";
import { DEFAULT_SETTLE_MS, settleCrds } from "../apiservers/settle.ts";
import { KsvmError, messageOf } from "../../errors.ts";
import { chooseGuard, freeze, parseOwner, unfreeze, unfreezeLeftBehind } from "../freeze/freeze.ts";
import { CRD_FIELD_MANAGER, freezeLifted, type Guard, proveFreeze } from "../freeze/prove.ts";
import { MIGRATING, OWNER } from "../freeze/rule.ts";
import type { Client } from "../kube/client.ts";
import { mayPass, whose } from "../kube/errors.ts";
import {
  type Crd,
  CRDS,
  epochOf,
  isClean,
  type KubeObject,
  METADATA,
  METADATA_LIST,
  storageVersion,
} from "../kube/objects.ts";
import { retry } from "../kube/retry.ts";
import { watch } from "../kube/watch.ts";
import { waitForInTree } from "./in-tree.ts";
import { Limiter } from "./limiter.ts";
import { rewriteAll, Stalled, type Target, targetOf, tryOneWrite } from "./rewrite.ts";
import { assertRights, rightsForFreeze, rightsForRewrite } from "./rights.ts";
import { DEFAULT_LEASE_NAMESPACE, RunLease } from "./run-lease.ts";
import type { MigrateOptions, MigrationEnd, MigrationEvent, MigrationResult } from "./types.ts";

/** The run of one of several CRDs, over all of its attempts. */
interface Run {
  readonly name: string;
  readonly emit: (event: MigrationEvent) => void;
  /** How often it began again because the CRD changed. */
  changes: number;
  /** When it last got further, on the monotonic clock. */
  progressAt: number;
}

/** A CRD that an attempt may freeze: one write was tried, and all that it rests on was read. */
interface Ready {
  readonly run: Run;
  /**
   * The CRD before the wait. Its uid and generation are what the attempt rests on: the generation changes with every change of
   * the spec, so as long as it is the same, the storage version has been the same all the time.
   */
  readonly epoch: Crd;
  readonly target: Target;
  readonly guard: Guard;
}

/**
 * Migrates CRDs by the workflow of KEP-2855: wait until every write is in the storage version, freeze it, rewrite every
 * object, prune storedVersions, lift the freeze. All of them share the wait, in which nothing is frozen. Then they follow one
 * after the other, and each ends by itself: one that fails holds up none.
 *
 * A run begins again at step 1 where the CRD changed, and where a webhook or an API server failed: it waits without a freeze,
 * and goes on where it was.
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
  let pending: readonly Run[] = [...new Set(names)].map((name) => ({
    name,
    emit: (event) => options.onEvent(event, name),
    changes: 0,
    progressAt: clock.monotonic(),
  }));
  while (pending.length > 0) {
    const again: Run[] = [];
    /** Notes how a run ended, or that it begins again. @returns what the work made, unless the run has ended by it */
    const attempt = async <T>(run: Run, work: () => Promise<T>): Promise<T | undefined> => {
      try {
        return await work();
      } catch (error) {
        if (options.signal.aborted || !mayBeginAgain(run, error, clock.monotonic(), options)) {
          ends.set(run.name, { name: run.name, error });
        } else {
          const reason = messageOf(error);
          run.emit(
            whose(error) === "webhook" ? { type: "waiting", for: "webhook", reason } : { type: "beginsAgain", reason },
          );
          again.push(run);
        }
        return undefined;
      }
    };
    const end = (run: Run, result: MigrationResult): void => void ends.set(run.name, { name: run.name, result });

    // 1. and 2. for all of them.
    const prepared = await eachOf(pending, (run) =>
      attempt(run, async () => {
        const found = await prepare(client, run, options);
        if ("outcome" in found) end(run, found);
        return "outcome" in found ? undefined : found;
      }),
    );
    const ready = prepared.filter((one) => one !== undefined);

    // 3. and 4. Converge and settle: one wait, and nothing is frozen.
    const settled = await settleAll(client, ready, options, attempt);

    // 5. to 12. One after the other.
    for (const one of settled) {
      const result = await attempt(one.run, () => migrateFrozen(client, one, options));
      if (result !== undefined) end(one.run, result);
    }
    const [first] = again;
    if (first !== undefined) await clock.sleep(pauseMs(again), options.signal).catch(() => undefined);
    pending = again;
  }
  return [...new Set(names)].map((name) => ends.get(name) ?? { name, error: options.signal.reason });
}

const MAX_CHANGES = 5;
const DEFAULT_MAX_IDLE_MS = 900_000;
/** An API server is missed for as long as its identity Lease lives. */
const MAX_MISSING_MS = 70 * 60_000;

/** Whether another attempt may succeed. Nobody judges whether a change of the CRD would have mattered. */
function mayBeginAgain(
  run: Run,
  error: unknown,
  now: number,
  { maxIdleMs = DEFAULT_MAX_IDLE_MS }: MigrateOptions,
): boolean {
  if (error instanceof EpochChanged) return ++run.changes < MAX_CHANGES;
  const idleMs = now - run.progressAt;
  if (error instanceof ApiServerMissing) return idleMs < MAX_MISSING_MS;
  return (error instanceof Stalled || (mayPass(error) && whose(error) !== "rights")) && idleMs < maxIdleMs;
}

function pauseMs(again: readonly Run[]): number {
  return 5_000 * Math.max(1, ...again.map(({ changes }) => changes));
}

const AT_ONCE = 8;

/** Does the same for each item, some at a time, and keeps their order. `work` must not throw. */
async function eachOf<T, U>(items: readonly T[], work: (item: T) => Promise<U>): Promise<readonly U[]> {
  const results: U[] = [];
  const queue = items.entries();
  const worker = async (): Promise<void> => {
    for (const [index, item] of queue) results[index] = await work(item);
  };
  await Promise.all(Array.from({ length: AT_ONCE }, worker));
  return results;
}

/**
 * 1. Tries one write, before anything is frozen: a webhook that is down and rights that are missing show here.
 * 2. Reads the epoch.
 */
async function prepare(client: Client, run: Run, options: MigrateOptions): Promise<Ready | MigrationResult> {
  const { dryRun = false, force = false, leaseNamespace = DEFAULT_LEASE_NAMESPACE, signal } = options;
  const crd = await readCrd(client, run.name, signal);
  assertMigratable(crd);
  if (isClean(crd) && !force && !dryRun) {
    if (await unfreezeLeftBehind(client, crd, signal)) run.emit({ type: "unfrozen" });
    return { resource: run.name, outcome: "nothing-to-do", ...versionsOf(crd) };
  }
  const target = targetOf(crd);
  const guard = await chooseGuard(client, run.name, signal);
  const wanted = rightsForRewrite(target.resource, {
    leaseNamespace,
    areServersNamed: options.endpoints !== undefined,
  });
  await assertRights(
    client,
    run.name,
    [...(dryRun ? wanted.slice(0, 2) : [...rightsForFreeze(run.name, guard), ...wanted])],
    signal,
  );
  if (dryRun) {
    const tally = await rewrite(client, run, target, { ...options, signal });
    return { resource: run.name, outcome: tally.failed > 0 ? "incomplete" : "dry-run", ...versionsOf(crd), tally };
  }
  const onWait = (reason: string): void => run.emit({ type: "waiting", for: "inTree", reason });
  await waitForInTree(client, target.resource, { signal, onWait });
  await tryOneWrite(client, target, signal);
  const epoch = await readCrd(client, run.name, signal);
  assertMigratable(epoch);
  return { run, epoch, target: targetOf(epoch), guard };
}

async function readCrd(client: Client, name: string, signal: AbortSignal): Promise<Crd> {
  const crd = await retry(client, () => client.find<Crd>(`${CRDS}/${name}`, { signal }), { signal });
  if (crd !== undefined) return crd;
  throw new KsvmError("ResourceNotFound", `Cannot find "${name}": there is no CustomResourceDefinition of this name`);
}

/** The finalizer of a CRD that is being deleted may write objects in an earlier version for minutes. */
function assertMigratable({ metadata, status }: Crd): void {
  if (metadata.deletionTimestamp === undefined) return;
  const { message } = (status?.conditions ?? []).find(({ type }) => type === "Terminating") ?? {};
  const why = message === undefined ? "" : ` (${message})`;
  const text = `the CRD is being deleted${why}; wait for that to end, or remove what keeps it`;
  throw new KsvmError("ResourceNotMigratable", `Cannot migrate "${metadata.name}": ${text}`);
}

function versionsOf(crd: Crd): Pick<MigrationResult, "storageVersion" | "storedVersions" | "epoch"> {
  return { storageVersion: storageVersion(crd), storedVersions: crd.status?.storedVersions ?? [], epoch: epochOf(crd) };
}

/** @returns those that are settled. A CRD that changed meanwhile begins again, and the others go on. */
async function settleAll(
  client: Client,
  ready: readonly Ready[],
  options: MigrateOptions,
  attempt: (run: Run, work: () => Promise<void>) => Promise<void>,
): Promise<readonly Ready[]> {
  if (ready.length === 0) return [];
  const { settleMs = DEFAULT_SETTLE_MS } = options;
  const onEvent = (event: MigrationEvent): void => {
    for (const { run } of ready) run.emit(event);
  };
  let failure: ((name: string) => unknown) | undefined;
  try {
    const epochs = ready.map(({ epoch }) => epoch);
    const changed = await settleCrds(client, epochs, { ...options, settleMs, onEvent });
    failure = (name) => changed.get(name);
  } catch (error) {
    failure = () => error;
  }
  for (const { run } of ready) {
    const error = failure(run.name);
    if (error !== undefined) await attempt(run, () => Promise.reject(error));
  }
  return ready.filter(({ run }) => failure(run.name) === undefined);
}

/** Steps 5 to 12, by the holder of the Lease. */
async function migrateFrozen(client: Client, ready: Ready, options: MigrateOptions): Promise<MigrationResult> {
  const { epoch, guard, run, target } = ready;
  const { force = false, identity, leaseNamespace = DEFAULT_LEASE_NAMESPACE } = options;
  const lease = await RunLease.take(client, {
    namespace: leaseNamespace,
    resource: run.name,
    identity,
    signal: options.signal,
  });
  const changed = new AbortController();
  const signal = AbortSignal.any([options.signal, lease.lost, changed.signal]);
  let watching: Promise<void> | undefined;
  try {
    // 5. Freeze the storage version, on a CRD of this epoch.
    const frozen = await freeze(client, epoch, { guard, owner: lease.owner, signal });
    watching = watchEpoch(client, epoch, identity, frozen.metadata.resourceVersion, changed);

    // 6. Prove on every API server that the guard is in force.
    const apiServers = await proveFreeze(client, options, { crdName: run.name, guard, signal });
    run.emit({ type: "frozen", storageVersion: storageVersion(epoch), guard, apiServers });

    // 7. to 9. Rewrite every object, from where an earlier run of the same epoch and purpose stood.
    const purpose = `${options.purpose ?? "migrate"}${force ? ` forced by ${identity}` : ""}`;
    const left = lease.checkpoint;
    const resume = left?.epoch === epochOf(epoch) && left.purpose === purpose ? left : undefined;
    if (resume !== undefined) run.emit({ type: "resumed", watermark: resume.watermark });
    // A run that waited for less than it should, or not for every API server, proves nothing to the next one.
    const isWhole = (options.settleMs ?? DEFAULT_SETTLE_MS) >= DEFAULT_SETTLE_MS && !options.ignored?.length;
    const tally = await rewrite(client, run, target, { ...options, signal }, resume, (position) => {
      lease.checkpoint = isWhole ? { epoch: epochOf(epoch), purpose, ...position } : undefined;
    });
    if (tally.failed > 0) return { resource: run.name, outcome: "incomplete", ...versionsOf(epoch), tally };

    // 10. Ask every API server once more, those that joined included.
    await askAll(client, options, [epoch], { signal, forMs: 30_000 });

    // 11. Prune.
    const pruned = await prune(client, epoch, identity, signal);
    const removed = (epoch.status?.storedVersions ?? []).filter((version) => version !== storageVersion(epoch));
    run.emit({ type: "pruned", storedVersions: pruned.status?.storedVersions ?? [], removed });
    lease.checkpoint = undefined;
    return { resource: run.name, outcome: "migrated", ...versionsOf(pruned), tally };
  } catch (error) {
    // What ended the attempt explains what failed by it.
    options.signal.throwIfAborted();
    lease.lost.throwIfAborted();
    changed.signal.throwIfAborted();
    throw error;
  } finally {
    // 12. Unfreeze on every way out.
    changed.abort();
    await watching;
    if (await unfreeze(client, run.name, identity)) run.emit({ type: "unfrozen" });
    await lease.release();
  }
}

async function rewrite(
  client: Client,
  run: Run,
  target: Target,
  { dryRun = false, maxInFlight, maxQps, signal }: MigrateOptions,
  resume?: RunLease["checkpoint"],
  onPosition?: (position: { readonly watermark: string; readonly continueToken?: string | undefined }) => void,
): ReturnType<typeof rewriteAll> {
  const limiter = new Limiter(client, { maxInFlight, maxQps });
  return rewriteAll(client, target, {
    limiter,
    resume,
    dryRun,
    signal,
    onPage: (position, tally) => {
      run.progressAt = client.clock.monotonic();
      onPosition?.(position);
      run.emit({ type: "progress", tally, continueToken: position.continueToken });
    },
    onProgress: (tally) => {
      run.progressAt = client.clock.monotonic();
      run.emit({ type: "progress", tally });
    },
  });
}

/** @throws where a CRD is not of the epoch that the attempt rests on, whatever the difference */
function assertEpoch(epoch: Crd, { metadata }: Pick<KubeObject, "metadata">, identity: string): void {
  const { name } = epoch.metadata;
  const { annotations = {}, deletionTimestamp, uid } = metadata;
  if (uid !== epoch.metadata.uid) throw new EpochChanged(name, "the CRD was deleted and created again");
  if (deletionTimestamp !== undefined) throw new EpochChanged(name, "the CRD is being deleted");
  if (annotations[MIGRATING] === undefined) throw freezeLifted(name);
  if (parseOwner(annotations[OWNER])?.identity !== identity) {
    const text = "another run took its migration over, or another client changed the owner of the freeze";
    throw new KsvmError("OwnershipLost", `Cannot continue with "${name}": ${text}; nothing was pruned`);
  }
  if (epochOf({ metadata }) !== epochOf(epoch)) throw new EpochChanged(name, "the spec of the CRD changed");
}

/** Ends an attempt early. Safety does not rest on it: the prune has a precondition. */
async function watchEpoch(
  client: Client,
  epoch: Crd,
  identity: string,
  resourceVersion: string,
  changed: AbortController,
): Promise<void> {
  const { name } = epoch.metadata;
  const { signal } = changed;
  const query = { fieldSelector: `metadata.name=${name}` };
  const look = (crd: KubeObject): void => {
    try {
      assertEpoch(epoch, crd, identity);
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
      from = listed.metadata.resourceVersion;
    } catch {
      await client.clock.sleep(5_000, signal).catch(() => undefined);
    }
  }
}

const MAX_CONFLICTS = 20;

/**
 * Sets storedVersions to the storage version alone. A compare-and-swap: its precondition is the resourceVersion of a read that
 * shows the epoch. It also heals what another client has pruned wrongly.
 *
 * @returns the CRD as it is read back: a write of status that goes astray answers 200 and does nothing
 */
async function prune(client: Client, epoch: Crd, identity: string, signal: AbortSignal): Promise<Crd> {
  const { name } = epoch.metadata;
  for (let conflicts = 0; conflicts < MAX_CONFLICTS; conflicts++) {
    const crd = await readCrd(client, name, signal);
    assertEpoch(epoch, crd, identity);
    if (isClean(crd)) return crd;
    const { resourceVersion, uid } = crd.metadata;
    const body = { metadata: { uid, resourceVersion }, status: { storedVersions: [storageVersion(epoch)] } };
    const options = { fieldManager: CRD_FIELD_MANAGER, signal };
    await retry(client, () => client.patch(`${CRDS}/${name}/status`, body, options), { signal }).catch(
      (error: unknown) => {
        // Another client wrote the CRD in between, or an earlier try arrived: the next read shows it.
        if (whose(error) !== "conflict") throw error;
      },
    );
  }
  throw new KsvmError(
    "PruneFailed",
    `Cannot prune storedVersions of "${name}": other clients kept writing the CRD; every object is migrated, run again to prune`,
  );
}
