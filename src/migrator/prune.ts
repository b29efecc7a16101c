import { type CustomResourceDefinition, isClean, specKeyOf, storedVersionsOf } from "../api/crd.ts";
import { CRD_FIELD_MANAGER } from "../api/names.ts";
import { KsvmError } from "../errors.ts";
import { isConflict } from "../kube/client.ts";
import { ApiError } from "../kube/errors.ts";
import { CRDS, MERGE_PATCH } from "../kube/resources.ts";
import type { CrdExpectation } from "../freeze/crd-expectation.ts";
import type { CrdMonitor } from "./crd-monitor.ts";
import { readCrd } from "../resources/read-crd.ts";
import type { RunContext } from "./run-context.ts";

/** What pruning rests on. */
export interface PruneOptions {
  readonly expected: CrdExpectation;
  readonly monitor: CrdMonitor;
  /** Repeats convergence and the proof of the freeze on every live API server; throws where either fails. */
  readonly proveAgain: () => Promise<void>;
  /** Renews the Lease of the run, which shows that etcd still has what this run wrote. */
  readonly renewLease: () => Promise<void>;
}

/** What came of pruning. */
export interface Pruned {
  /** As it was read back. */
  readonly storedVersions: readonly string[];
  /** `uid/generation` of the CRD that the decision was made on: the last one that all of it was proven for. */
  readonly crd: string;
}

/** How often the decision is made again because another client wrote the CRD in between. */
const MAX_CONFLICTS = 10;

/**
 * Sets `status.storedVersions` to the storage version alone. The caller has seen every object in that version. The
 * resourceVersion of the CRD that the decision was made on is the precondition of the write, so any change in between
 * makes it decide again.
 *
 * @throws {KsvmError} whatever broke the expectation, or the client's fence throws; PruneFailed where the API server does not take the write.
 */
export async function pruneStoredVersions(context: RunContext, options: PruneOptions): Promise<Pruned> {
  const { name } = options.expected;
  // A backup that was made after this write has all that was rewritten, and from one before it the next renewal fails.
  await options.renewLease();
  for (let conflicts = 0; conflicts <= MAX_CONFLICTS; conflicts++) {
    await options.proveAgain();
    const crd = await readCrd(context, name);
    await options.monitor.verifyUpTo(crd, context.signal);
    if (isClean(crd)) {
      await options.renewLease();
    }
    if (isClean(crd) || (await writeStoredVersions(context, crd, options))) {
      return { storedVersions: await readBack(context, options.expected), crd: specKeyOf(crd.metadata) };
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
async function writeStoredVersions(
  context: RunContext,
  crd: CustomResourceDefinition,
  { expected: { storageVersion }, renewLease }: PruneOptions,
): Promise<boolean> {
  const { client, retrier, signal } = context;
  const { name, uid, resourceVersion } = crd.metadata;
  const body = { metadata: { uid, resourceVersion }, status: { storedVersions: [storageVersion] } };
  const options = { subresource: "status", fieldManager: CRD_FIELD_MANAGER, signal };
  let mayBeWritten = false;
  const onFailure = (error: unknown): never => {
    mayBeWritten ||= !isRefusal(error);
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
    if (mayBeWritten) tellUnread(context, name);
    throw error;
  }
}

/** Whether an API server said that it did not write. */
function isRefusal(error: unknown): boolean {
  return error instanceof ApiError && error.status < 500;
}

/** The run ends with an error, and users take what it does not tell as not done. */
function tellUnread({ emit }: RunContext, name: string): void {
  const message = `storedVersions of "${name}" may be pruned: the run ended before the API server said so`;
  emit({ type: "warning", message });
}

/** A write of status through the main resource answers 200 and does nothing: what counts is what is read back. */
async function readBack(context: RunContext, { name, storageVersion }: CrdExpectation): Promise<readonly string[]> {
  const crd = await readCrd(context, name).catch((error: unknown) => {
    tellUnread(context, name);
    throw error;
  });
  const storedVersions = storedVersionsOf(crd);
  if (storedVersions.length === 1 && storedVersions[0] === storageVersion) {
    return storedVersions;
  }
  throw new KsvmError(
    "PruneFailed",
    `Cannot prune storedVersions of "${name}": it reads back as [${storedVersions.join(",")}] instead of ` +
      `[${storageVersion}]`,
  );
}
