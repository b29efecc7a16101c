import { type CrdCondition, type CustomResourceDefinition, isClean, specKeyOf, storedVersionsOf } from "../../api/crd.ts";
import { CRD_FIELD_MANAGER } from "../../api/names.ts";
import { KsvmError } from "../../errors.ts";
import { isConflict } from "../kube/client.ts";
import { ApiError, DoubtfulAnswer, TransportError } from "../kube/errors.ts";
import { CRDS, MERGE_PATCH } from "../kube/resources.ts";
import type { CrdExpectation } from "../freeze/crd-expectation.ts";
import { conditionsWithoutDoubt } from "../../in-tree/prune-doubt.ts";
import type { CrdMonitor } from "./crd-monitor.ts";
import { readCrd } from "../../resources/read-crd.ts";
import type { RunContext } from "./run-context.ts";

/** What pruning rests on. */
export interface PruneOptions {
  readonly expected: CrdExpectation;
  readonly monitor: CrdMonitor;
  /** Repeats convergence and the proof of the freeze on every live API server; throws where either fails. */
  readonly proveAgain: () => Promise<void>;
  /** Renews the Lease of the run and looks at the objects, which shows that etcd still has what this run wrote. */
  readonly renewLease: () => Promise<void>;
}

/** What came of pruning. */
export interface Pruned {
  /** As it was read back. */
  readonly storedVersions: readonly string[];
  /** `uid/generation` of the CRD that the decision was made on: the last one that all of it was proven for. */
  readonly crd: string;
  /** Whether this took off the condition of a migration of Kubernetes' own migrator that ended without a success. */
  readonly clearsDoubt: boolean;
}

/** How often the decision is made again because another client wrote the CRD in between. */
const MAX_CONFLICTS = 10;

/**
 * Sets `status.storedVersions` to the storage version alone, and takes off the condition that casts doubt on that. The caller has seen every object in that version. The
 * resourceVersion of the CRD that the decision was made on is the precondition of the write, so any change in between
 * makes it decide again.
 *
 * @throws {KsvmError} whatever broke the expectation, or the client's fence throws; PruneFailed where the API server does not take the write.
 */
export async function pruneStoredVersions(context: RunContext, options: PruneOptions): Promise<Pruned> {
  const { name } = options.expected;
  const doubt = { mayBeWritten: false };
  try {
    return await pruneUntilDone(context, options, doubt);
  } catch (error) {
    // Users take what a run that fails does not tell as not done.
    if (doubt.mayBeWritten) {
      const message = `storedVersions of "${name}" may be pruned all the same: the API server did not say what became of the write`;
      context.emit({ type: "warning", message });
    }
    throw error;
  }
}

/** What is written beside storedVersions. */
interface StatusWrite {
  /** As `conditionsWithoutDoubt()` has them. */
  readonly conditions: readonly CrdCondition[] | undefined;
}

/** Whether the API server may have pruned, and did not say so. */
interface Doubt {
  mayBeWritten: boolean;
}

async function pruneUntilDone(context: RunContext, options: PruneOptions, doubt: Doubt): Promise<Pruned> {
  const { name } = options.expected;
  // A backup that was made after this write has all that was rewritten, and from one before it the next renewal fails.
  await options.renewLease();
  for (let conflicts = 0; conflicts <= MAX_CONFLICTS; conflicts++) {
    await options.proveAgain();
    const crd = await readCrd(context, name);
    if (!isClean(crd)) {
      // A write that is still under way has a precondition that no longer holds.
      doubt.mayBeWritten = false;
    }
    await options.monitor.verifyUpTo(crd, context.signal);
    const conditions = conditionsWithoutDoubt(crd);
    const isPruned = isClean(crd) && conditions === undefined;
    if (isPruned) {
      await options.renewLease();
    }
    if (isPruned || (await writeStatus(context, crd, { ...options, conditions }, doubt))) {
      const storedVersions = await readBack(context, options.expected, doubt);
      return { storedVersions, crd: specKeyOf(crd.metadata), clearsDoubt: conditions !== undefined };
    }
  }
  throw new KsvmError(
    "PruneFailed",
    `Cannot prune storedVersions of "${name}": the CRD was written by others at every one of ${MAX_CONFLICTS + 1} ` +
      "attempts; every object is migrated, run again to prune",
  );
}

/**
 * `false` if another client wrote the CRD since it was read. Each attempt renews the Lease first: etcd may have been restored from
 * a backup in which the CRD is as it is now, and the objects are not.
 */
async function writeStatus(
  { client, retrier, signal }: RunContext,
  crd: CustomResourceDefinition,
  { conditions, expected: { storageVersion }, renewLease }: PruneOptions & StatusWrite,
  doubt: Doubt,
): Promise<boolean> {
  const { name, uid, resourceVersion } = crd.metadata;
  const status = { storedVersions: [storageVersion], ...(conditions === undefined ? {} : { conditions }) };
  const body = { metadata: { uid, resourceVersion }, status };
  const options = { subresource: "status", fieldManager: CRD_FIELD_MANAGER, signal };
  const onFailure = (error: unknown): never => {
    doubt.mayBeWritten ||= !isClean(crd) && (signal.aborted || isNoAnswer(error));
    throw error;
  };
  const write = async (): Promise<unknown> => {
    await renewLease();
    return client.patch(CRDS, { name }, { type: MERGE_PATCH, body }, options).catch(onFailure);
  };
  try {
    await retrier.run(write, signal);
    return true;
  } catch (error) {
    if (isConflict(error)) {
      return false;
    }
    throw error;
  }
}

function isNoAnswer(error: unknown): boolean {
  return (
    error instanceof TransportError ||
    error instanceof DoubtfulAnswer ||
    (error instanceof ApiError && (error.status >= 500 || error.status === 408))
  );
}

/** A write of status through the main resource answers 200 and does nothing: what counts is what is read back. */
async function readBack(
  context: RunContext,
  { name, storageVersion }: CrdExpectation,
  doubt: Doubt,
): Promise<readonly string[]> {
  doubt.mayBeWritten = true;
  const storedVersions = storedVersionsOf(await readCrd(context, name));
  doubt.mayBeWritten = false;
  if (storedVersions.length === 1 && storedVersions[0] === storageVersion) {
    return storedVersions;
  }
  throw new KsvmError(
    "PruneFailed",
    `Cannot prune storedVersions of "${name}": it reads back as [${storedVersions.join(",")}] instead of ` +
      `[${storageVersion}]`,
  );
}
