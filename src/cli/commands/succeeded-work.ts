import { isWholeRun } from "../../api/migration.ts";
import { epochOf } from "../../apiservers/converge.ts";
import { type Crd, isClean, storageVersion } from "../../kube/objects.ts";
import { pruneDoubt } from "../../migrator/crd-state.ts";

/** What is left of a resource whose migration has succeeded. */
interface LeftStored {
  readonly isMigrated: boolean;
  /** What storedVersions says or lacks, or what is not proven, why, and what to do. */
  readonly text: string;
}

const BY_OTHERS = "the migration says that it succeeded, which another migrator than ksvm may have written";

/** What a migration that calls itself Succeeded says of its work. */
export interface SucceededWork {
  /** `status.crd` of the migration, which this program alone writes: each run of ksvm that had work leaves it. */
  readonly proven: string | undefined;
  /**
   * Whether every object was to be written, also where the CRD was clean before. @default storedVersions of a clean CRD
   * is enough
   */
  readonly isProofDue?: boolean;
}

/**
 * What a CRD says against a migration that has succeeded: another migrator of migration.k8s.io prunes nothing, and
 * proves nothing about objects that other clients write during its run.
 * @returns `undefined` if storedVersions lists the storage version alone, unless no run of ksvm has proven every
 *   object, and that is due, or
 *   Kubernetes' own migrator may have pruned it
 */
export function leftStoredOf(crd: Crd, work: SucceededWork): LeftStored | undefined {
  const { proven } = work;
  if (isClean(crd)) {
    const doubt = proven === undefined ? unprovenTextOf(crd, work) : undefined;
    return doubt === undefined ? undefined : { isMigrated: false, text: `${BY_OTHERS}, and ${doubt}` };
  }
  const { name } = crd.metadata;
  const storage = storageVersion(crd);
  const left = (crd.status?.storedVersions ?? []).filter((version) => version !== storage);
  const stored =
    left.length === 0 ? `storedVersions lacks ${storage}` : `storedVersions still lists ${left.join(", ")}`;
  if (proven === epochOf(crd)) {
    const why = "the controller runs with --manage-stored-versions=false, and leaves it to another program to prune";
    const text = `every object is stored in ${storage}, and ${stored}: ${why}; --standalone prunes`;
    return { isMigrated: true, text };
  }
  const why =
    proven === undefined
      ? "another migrator than ksvm may have written that; it does not prune. Run ksvm status to see whether a controller of ksvm leads, " +
        `then run ksvm migrate ${name} --standalone`
      : `the CRD has changed since; run ksvm migrate ${name} again`;
  return { isMigrated: false, text: `the migration says that it succeeded, and ${stored}: ${why}` };
}

/**
 * What speaks against a migration that has succeeded where no CRD says anything, as that of a built-in resource: its
 * reason is all that shows which program has written the end.
 * @param command the command that does the work which the other program may not have done
 * @returns `undefined` if a run of ksvm has
 */
export function unprovenOf(reason: string | undefined, command: string): LeftStored | undefined {
  if (isWholeRun(reason)) {
    return undefined;
  }
  const steps = `Run ksvm status to see whether a controller of ksvm leads, then run ${command}`;
  return { isMigrated: false, text: `${BY_OTHERS}. ${steps}` };
}

/** Why a CRD that is clean may have objects that were not written; `undefined` where that is no matter. */
function unprovenTextOf(crd: Crd, { isProofDue = false }: Pick<SucceededWork, "isProofDue">): string | undefined {
  const why = pruneDoubt(crd) ?? (isProofDue ? "no run of ksvm has proven that every object was written" : undefined);
  const steps = "Run ksvm status to see whether a controller of ksvm leads, then run";
  return why && `${why}. ${steps} ksvm migrate ${crd.metadata.name} --standalone --force`;
}
