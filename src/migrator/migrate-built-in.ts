import { type AgreedResource, agreement } from "../apiservers/agree.ts";
import { convergeAll, discover, EpochChanged, epochOf } from "../apiservers/converge.ts";
import { type Answers, ApiServerMissing, type ApiServerOptions, askEach } from "../apiservers/find.ts";
import { DEFAULT_SETTLE_MS, settle } from "../apiservers/settle.ts";
import { KsvmError, messageOf } from "../errors.ts";
import type { Client } from "../kube/client.ts";
import { whose } from "../kube/errors.ts";
import { apiVersion, type Crd, CRDS, resourceName, storageVersion } from "../kube/objects.ts";
import { retry } from "../kube/retry.ts";
import { beginsAgain, mayBeginAgain, newRun, pauseMs, rewrite, type Run, yieldToInTree } from "./attempts.ts";
import { type Target, targetOf, tryOneWrite } from "./rewrite.ts";
import { assertRights, rightsForDryRun, rightsForRewrite } from "./rights.ts";
import { checkpointPurpose, DEFAULT_LEASE_NAMESPACE, type Position, RunLease } from "./run-lease.ts";
import type { MigrateOptions, MigrationResult } from "./types.ts";

export interface BuiltInOptions extends MigrateOptions {
  /**
   * What was waited for already: hash and processes, or evidence and processes, and how long. How API servers store a
   * built-in resource does not change while they run. The caller keeps it for as long as its process lives.
   * @default nothing was
   */
  readonly settled?: Set<string>;
  /** What else each API server has to answer, such as how it encrypts. @default nothing */
  readonly evidence?: ((apiServer: Client, signal: AbortSignal) => Promise<Evidence>) | undefined;
}

/** What one API server says about itself. It must not change until the end of a run. */
export interface Evidence {
  /** What all of them have to say alike, in words. */
  readonly alike: string;
  /** What is its own. */
  readonly own: string;
  /** It does not hold before this time of the monotonic clock. @default it does */
  readonly holdsFrom?: number;
}

/** What a run of a built-in resource rests on. */
interface Foundation {
  /** As it was read with the answers; `undefined` for a built-in resource. */
  readonly crd: Crd | undefined;
  readonly resource: AgreedResource;
  readonly epoch: string;
  /** What has to be waited for. Where a run rests on evidence, it is the same for every resource. */
  readonly awaited: string;
}

/**
 * Rewrites every object of a resource that has no CRD, or of one whose storage version stays as it is. Nothing is
 * frozen and nothing pruned: every API server shows one and the same hash, writes of before have ended, and at the end
 * there are the same hash and the same processes. Else the run begins again.
 *
 * @param name `plural.group`, or `plural` in the core group
 * @throws {KsvmError} ResourceNotFound, ResourceNotMigratable, Forbidden, AlreadyMigrating, ApiServerMissing
 */
export async function migrateBuiltIn(client: Client, name: string, options: BuiltInOptions): Promise<MigrationResult> {
  const { dryRun = false, leaseNamespace: namespace = DEFAULT_LEASE_NAMESPACE, signal } = options;
  const { clock } = client;
  const run = newRun(client, name, options);
  // One that cannot be written without a loss is refused by name, also where no version is served.
  const crd = await readCrd(client, name, signal);
  const target = crd && crdTarget(crd);
  const found = await findResource(client, name, signal);
  if (dryRun) {
    await assertRights(client, name, rightsForDryRun(found), signal);
    const tally = await rewrite(client, run, target ?? builtInTarget(found), options);
    return { resource: name, outcome: tally.failed > 0 ? "incomplete" : "dry-run", tally };
  }
  const areServersNamed = options.endpoints !== undefined;
  const rights = rightsForRewrite(found, { leaseNamespace: namespace, areServersNamed });
  await assertRights(client, name, rights, signal);
  const lease = await RunLease.take(client, { namespace, resource: name, identity: run.identity, signal });
  const held = { ...options, signal: AbortSignal.any([signal, lease.lost]) };
  try {
    for (;;) {
      try {
        return await attempt(client, run, found, lease, held);
      } catch (error) {
        held.signal.throwIfAborted();
        if (error instanceof EpochChanged) run.changes++;
        if (!mayBeginAgain(run, error, clock.monotonic(), options.maxIdleMs)) throw error;
        run.emit(beginsAgain(error));
        await clock.sleep(pauseMs(run.changes), held.signal);
      }
    }
  } finally {
    await lease.release();
  }
}

async function attempt(
  client: Client,
  run: Run,
  found: AgreedResource,
  lease: RunLease,
  options: BuiltInOptions,
): Promise<MigrationResult> {
  const { settled, settleMs = DEFAULT_SETTLE_MS, signal } = options;
  const { name } = run;
  const { clock } = client;
  await yieldToInTree(client, run, found, options);
  const before = await readCrd(client, name, signal);
  await tryOneWrite(client, before === undefined ? builtInTarget(found) : crdTarget(before), signal);

  // Every API server stores the resource in one way, and writes of before have ended.
  const ask = async (): Promise<Answers<unknown> & { readonly foundation: Foundation }> => {
    const { answers, foundation } = await look(client, name, found, options);
    // Another hash or another evidence has to be waited for like another process.
    return { ...answers, processes: foundation.epoch, foundation };
  };
  const purpose = checkpointPurpose(options, run.identity);
  // The wait of a forced run is as good as that of any other.
  const howLong = checkpointPurpose({ ...options, force: false }, run.identity);
  const waitFor = ({ awaited }: Foundation): string => `${awaited} ${howLong}`;
  const isWaitedFor = async ({ foundation }: { readonly foundation: Foundation }): Promise<boolean> =>
    settled?.has(waitFor(foundation)) === true;
  const start = clock.monotonic();
  const { foundation } = await settle(client, ask, isWaitedFor, { ...options, settleMs, onEvent: run.emit });
  // The wait is no time without progress.
  run.progressAt += clock.monotonic() - start;
  settled?.add(waitFor(foundation));
  const { crd, epoch, resource } = foundation;

  const resume = lease.checkpointFor(epoch, purpose);
  const target = crd === undefined ? builtInTarget(resource) : crdTarget(crd);
  const assertCurrent = async (): Promise<void> => {
    const now = crd && (await readCrd(client, name, signal));
    if (crd !== undefined && (now === undefined || epochOf(now) !== epochOf(crd))) {
      throw new EpochChanged(name, "the CRD changed");
    }
  };
  const onPosition = (position: Position): void => {
    lease.checkpoint = { epoch, purpose, ...position };
  };
  const tally = await rewrite(client, run, target, options, { assertCurrent, onPosition, resume });
  const after = await look(client, name, found, options).catch((error: unknown) => {
    throw error instanceof ApiServerMissing ? new EpochChanged(name, messageOf(error)) : error;
  });
  if (after.foundation.epoch !== epoch) {
    const text = "the CRD changed, or an API server was started, has left, or stores the resource otherwise";
    throw new EpochChanged(name, text);
  }
  if (tally.failed === 0) lease.checkpoint = undefined;
  const outcome = tally.failed > 0 ? "incomplete" : "migrated";
  // A wait for evidence is one for all resources: it says nothing of writes in an earlier version of this CRD.
  const isProven = crd !== undefined && options.evidence === undefined;
  const proven = isProven ? { crd: epochOf(crd), storageVersion: storageVersion(crd) } : {};
  return { resource: name, outcome, epoch, tally, ...proven };
}

/** @throws {ApiServerMissing} where API servers do not agree, which passes once an upgrade is over */
async function look(
  client: Client,
  name: string,
  found: AgreedResource,
  options: BuiltInOptions,
): Promise<{ readonly foundation: Foundation; readonly answers: Answers<unknown> }> {
  const { evidence, signal } = options;
  // Its uid and generation: a storage version that went there and back leaves the same hash.
  const crd = await readCrd(client, name, signal);
  // One that is behind with the schema would drop fields from what it writes.
  if (crd !== undefined) await convergeAll(client, options, [crd], { signal, forMs: 30_000 });
  const { agreed, answers, disagreements } = await agreement(client, options, [found], signal);
  const resource = agreed.get(name);
  if (resource === undefined) {
    const reason = disagreements.get(name);
    // It was deleted, or they have just started.
    if (reason === undefined) throw new EpochChanged(name, "no API server lists it");
    throw new ApiServerMissing(`the API servers do not agree on how "${name}" is stored: ${reason}`);
  }
  const stored = [...(crd === undefined ? [] : [epochOf(crd)]), resource.hash].join(" ");
  if (evidence === undefined) {
    const epoch = `${stored} ${answers.processes}`;
    return { answers, foundation: { crd, resource, epoch, awaited: epoch } };
  }
  const said = await evidenceOfAll(client, options, evidence, signal);
  if (said.answers.processes !== answers.processes) {
    throw new ApiServerMissing("one was started or has left while they were asked");
  }
  return { answers, foundation: { crd, resource, epoch: `${stored} ${said.epoch}`, awaited: said.epoch } };
}

/**
 * Asks every API server for its evidence.
 * @returns what they say, and which processes they are: the end of the epoch of a run that rests on it
 * @throws {ApiServerMissing} where they differ, and where it does not hold yet
 */
export async function evidenceOfAll(
  client: Client,
  options: ApiServerOptions,
  evidence: NonNullable<BuiltInOptions["evidence"]>,
  signal: AbortSignal,
): Promise<{ readonly epoch: string; readonly answers: Answers<Evidence> }> {
  const answers = await askEach(client, options, evidence, signal);
  const [first, ...others] = answers.answers;
  const alike = first?.answer.alike ?? "";
  const other = others.find(({ answer }) => answer.alike !== alike);
  if (other !== undefined) {
    throw new ApiServerMissing(`${first?.address} shows ${alike}, and ${other.address} ${other.answer.alike}`);
  }
  const now = client.clock.monotonic();
  const early = answers.answers.find(({ answer: { holdsFrom = now } }) => holdsFrom > now);
  if (early !== undefined) {
    throw new ApiServerMissing(`${early.address} shows ${alike}, which may take some minutes to hold`);
  }
  const own = answers.answers.map(({ answer }) => answer.own).toSorted();
  return { answers, epoch: [answers.processes, alike, ...own].join(" ") };
}

/** `undefined` where there is no CRD of this name. */
async function readCrd(client: Client, name: string, signal: AbortSignal): Promise<Crd | undefined> {
  // The group of a CRD has a dot.
  if (name.split(".").length < 3) return undefined;
  const path = `${CRDS}/${encodeURIComponent(name)}`;
  return retry(client, () => client.find<Crd>(path, { signal }), { signal });
}

/**
 * How the objects of a CRD are written. managedFields stay as they are: nothing keeps the storage version from changing.
 * @throws {KsvmError} ResourceNotMigratable where a write could lose fields
 */
function crdTarget(crd: Crd): Target {
  return { ...targetOf(crd), wantedFields: () => undefined };
}

/** Built-in versions are converted in both directions while they are served, so managedFields stay as they are. */
function builtInTarget({ group, kind, plural, version }: AgreedResource): Target {
  return {
    resource: { group, version, plural },
    kind,
    storedAs: apiVersion({ group, version }),
    otherVersions: [],
    isConverted: false,
    wantedFields: () => undefined,
    hasStatus: false,
  };
}

/** A group and its versions, the preferred one first. */
interface ApiGroup {
  readonly preferredVersion: { readonly version: string };
  readonly versions: readonly { readonly version: string }[];
}

/** @throws {KsvmError} ResourceNotFound; ResourceNotMigratable where it cannot be listed and patched */
async function findResource(client: Client, name: string, signal: AbortSignal): Promise<AgreedResource> {
  const [plural = "", ...rest] = name.split(".");
  const group = rest.join(".");
  const notFound = new KsvmError(
    "ResourceNotFound",
    `Cannot find "${name}": expected a resource such as "deployments.apps" or "secrets"`,
  );
  const read = <T>(path: string): Promise<T> =>
    retry(client, () => client.get<T>(path, { signal }), { signal }).catch((error: unknown) => {
      throw whose(error) === "gone" ? notFound : error;
    });
  const versions =
    group === ""
      ? ["v1"]
      : await read<ApiGroup>(`/apis/${group}`).then(({ preferredVersion, versions: all }) => [
          ...new Set([preferredVersion.version, ...all.map(({ version }) => version)]),
        ]);
  for (const version of versions) {
    const served = await retry(client, () => discover(client, { group, version }, { signal }), { signal });
    const entry = served.find((resource) => resource.name === plural);
    if (entry === undefined) continue;
    const missing = ["list", "patch"].filter((verb) => !entry.verbs.includes(verb));
    if (missing.length === 0) {
      const { kind, storageVersionHash: hash = "", verbs } = entry;
      return { group, version, plural, kind, verbs, hash };
    }
    const text = `the API server does not offer ${missing.join(" and ")} for it`;
    throw new KsvmError("ResourceNotMigratable", `Cannot migrate "${resourceName({ group, plural })}": ${text}`);
  }
  throw notFound;
}
