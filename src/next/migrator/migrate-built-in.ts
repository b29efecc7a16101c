import { type AgreedResource, agreement } from "../apiservers/agree.ts";
import { EpochChanged } from "../apiservers/converge.ts";
import { type Answers, ApiServerMissing, askEach } from "../apiservers/find.ts";
import { DEFAULT_SETTLE_MS, settle } from "../apiservers/settle.ts";
import { KsvmError, messageOf } from "../../errors.ts";
import type { Client } from "../kube/client.ts";
import { mayPass, whose } from "../kube/errors.ts";
import { groupVersionPath, type Resource, resourceName } from "../kube/objects.ts";
import { retry } from "../kube/retry.ts";
import { waitForInTree } from "./in-tree.ts";
import { Limiter } from "./limiter.ts";
import { rewriteAll, Stalled, type Target, tryOneWrite } from "./rewrite.ts";
import { assertRights, rightsForRewrite } from "./rights.ts";
import { DEFAULT_LEASE_NAMESPACE, RunLease } from "./run-lease.ts";
import type { MigrateOptions, MigrationResult, Tally } from "./types.ts";

export interface BuiltInOptions extends MigrateOptions {
  /**
   * The sets of API server processes that were waited for already. How they store a built-in resource does not change while
   * they run. The caller keeps it for as long as its process lives. @default none were
   */
  readonly settled?: Set<string>;
  /**
   * What else each API server has to answer, and all of them alike, such as the hash of its EncryptionConfiguration. It must
   * not change until the end. @default nothing
   */
  readonly evidence?: (apiServer: Client, signal: AbortSignal) => Promise<string>;
}

/** What a run of a built-in resource rests on. */
interface Foundation {
  readonly resource: AgreedResource;
  readonly epoch: string;
}

const MAX_CHANGES = 5;
const DEFAULT_MAX_IDLE_MS = 900_000;
const MAX_MISSING_MS = 70 * 60_000;

/**
 * Rewrites every object of a resource that has no CRD, or of one whose storage version stays as it is. Nothing is frozen and
 * nothing pruned: every API server shows one and the same hash, writes of before have ended, and at the end there are the
 * same hash and the same processes. Else the run begins again.
 *
 * @param name `plural.group`, or `plural` in the core group
 * @throws {KsvmError} ResourceNotFound, ResourceNotMigratable, Forbidden, AlreadyMigrating, ApiServerMissing
 */
export async function migrateBuiltIn(client: Client, name: string, options: BuiltInOptions): Promise<MigrationResult> {
  const {
    dryRun = false,
    identity,
    leaseNamespace = DEFAULT_LEASE_NAMESPACE,
    maxIdleMs = DEFAULT_MAX_IDLE_MS,
  } = options;
  const { clock } = client;
  const found = await findResource(client, name, options.signal);
  const rights = rightsForRewrite(found, { leaseNamespace, areServersNamed: options.endpoints !== undefined });
  await assertRights(client, name, dryRun ? rights.slice(0, 2) : rights, options.signal);
  if (dryRun) {
    const tally = await rewrite(client, name, { resource: found, epoch: "" }, options);
    return { resource: name, outcome: tally.failed > 0 ? "incomplete" : "dry-run", tally };
  }
  const lease = await RunLease.take(client, {
    namespace: leaseNamespace,
    resource: name,
    identity,
    signal: options.signal,
  });
  const attemptOptions = { ...options, signal: AbortSignal.any([options.signal, lease.lost]) };
  let progressAt = clock.monotonic();
  const onProgress = (): void => {
    progressAt = clock.monotonic();
  };
  try {
    for (let changes = 0; ; ) {
      try {
        return await attempt(client, name, found, lease, attemptOptions, onProgress);
      } catch (error) {
        options.signal.throwIfAborted();
        lease.lost.throwIfAborted();
        if (error instanceof EpochChanged) changes++;
        const idleMs = clock.monotonic() - progressAt;
        const isPassing = error instanceof Stalled || (mayPass(error) && whose(error) !== "rights");
        const mayBeginAgain =
          (error instanceof EpochChanged && changes < MAX_CHANGES) ||
          (error instanceof ApiServerMissing && idleMs < MAX_MISSING_MS) ||
          (isPassing && idleMs < maxIdleMs);
        if (!mayBeginAgain) throw error;
        options.onEvent({ type: "beginsAgain", reason: messageOf(error) }, name);
        await clock.sleep(5_000 * Math.max(1, changes), attemptOptions.signal);
      }
    }
  } finally {
    await lease.release();
  }
}

async function attempt(
  client: Client,
  name: string,
  found: AgreedResource,
  lease: RunLease,
  options: BuiltInOptions,
  onProgress: () => void,
): Promise<MigrationResult> {
  const { onEvent, settled, settleMs = DEFAULT_SETTLE_MS, signal } = options;
  const onWait = (reason: string): void => onEvent({ type: "waiting", for: "inTree", reason }, name);
  await waitForInTree(client, found, { signal, onWait });
  await tryOneWrite(client, targetOf(found), signal);

  // Every API server stores the resource in one way, and writes of before have ended.
  let foundation: Foundation | undefined;
  const ask = async (): Promise<Answers<unknown>> => {
    const seen = await look(client, name, found, options);
    foundation = seen.foundation;
    // Another hash or another evidence has to be waited for like another process.
    return { ...seen.answers, processes: seen.foundation.epoch };
  };
  const wasSettled = async (): Promise<boolean> => settled?.has(foundation?.epoch ?? "") === true;
  await settle(client, ask, wasSettled, { ...options, settleMs, onEvent: (event) => onEvent(event, name) });
  if (foundation === undefined) throw new KsvmError("Internal", "no API server was asked");
  const { epoch } = foundation;
  // A wait that was shorter than it should be, or not for every API server, proves nothing to the next run.
  const isWhole = settleMs >= DEFAULT_SETTLE_MS && !options.ignored?.length;
  if (isWhole) settled?.add(epoch);

  const { purpose = "migrate" } = options;
  const left = lease.checkpoint;
  const resume = left?.epoch === epoch && left.purpose === purpose ? left : undefined;
  const tally = await rewrite(client, name, foundation, options, resume, (position) => {
    onProgress();
    lease.checkpoint = isWhole ? { epoch, purpose, ...position } : undefined;
  });
  const after = await look(client, name, found, options);
  if (after.foundation.epoch !== epoch) {
    throw new EpochChanged(name, "an API server was started, has left, or stores the resource otherwise");
  }
  lease.checkpoint = undefined;
  return { resource: name, outcome: tally.failed > 0 ? "incomplete" : "migrated", epoch, tally };
}

/** @throws {ApiServerMissing} where API servers do not agree, which passes once an upgrade is over */
async function look(
  client: Client,
  name: string,
  found: AgreedResource,
  options: BuiltInOptions,
): Promise<{ readonly foundation: Foundation; readonly answers: Answers<unknown> }> {
  const { evidence, signal } = options;
  const { agreed, answers, disagreements } = await agreement(client, options, [found], signal);
  const resource = agreed.get(name);
  if (resource === undefined) {
    const reason = disagreements.get(name) ?? "an API server does not list it";
    throw new ApiServerMissing(`the API servers do not agree on how "${name}" is stored: ${reason}`);
  }
  let proof = "";
  if (evidence !== undefined) {
    const asked = await askEach(client, options, (apiServer) => evidence(apiServer, signal), signal);
    const [first, ...others] = new Set(asked.answers.map(({ answer }) => answer));
    if (others.length > 0 || asked.processes !== answers.processes) {
      throw new ApiServerMissing(`the API servers do not agree on how "${name}" is encrypted`);
    }
    proof = ` ${first}`;
  }
  return { answers, foundation: { resource, epoch: `${resource.hash} ${answers.processes}${proof}` } };
}

/** Built-in versions are converted in both directions for as long as they are served, so managedFields stay as they are. */
function targetOf({ group, kind, plural, version }: AgreedResource): Target {
  return {
    resource: { group, version, plural },
    kind,
    otherVersions: [],
    wantedFields: () => undefined,
    hasStatus: false,
  };
}

function rewrite(
  client: Client,
  name: string,
  { resource }: Foundation,
  { dryRun = false, maxInFlight, maxQps, onEvent, signal }: BuiltInOptions,
  resume?: RunLease["checkpoint"],
  onPosition?: (position: { readonly watermark: string; readonly continueToken?: string | undefined }) => void,
): Promise<Tally> {
  return rewriteAll(client, targetOf(resource), {
    limiter: new Limiter(client, { maxInFlight, maxQps }),
    resume,
    dryRun,
    signal,
    onPage: (position, tally) => {
      onPosition?.(position);
      onEvent({ type: "progress", tally, continueToken: position.continueToken }, name);
    },
    onProgress: (tally) => onEvent({ type: "progress", tally }, name),
  });
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
    const { resources } = await read<{
      resources:
        | readonly (Omit<AgreedResource, keyof Resource> & { name: string; storageVersionHash?: string })[]
        | null;
    }>(groupVersionPath({ group, version }));
    const entry = resources?.find((resource) => resource.name === plural);
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
