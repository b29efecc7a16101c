import { STORAGE_MIGRATING } from "../freeze/rule.ts";
import { type InTreeMigration, inTreeResource, inTreeState } from "../migrator/in-tree.ts";

interface Condition {
  readonly type: string;
  readonly status: string;
  readonly reason?: string;
  readonly message?: string;
}

/** What is read of a CRD. */
export interface ReadCrd {
  readonly spec: { readonly versions: readonly { readonly name: string }[] };
  readonly status?:
    | { readonly storedVersions?: readonly string[]; readonly conditions?: readonly Condition[] | null }
    | undefined;
}

/**
 * Says in the message of a success that the CRD was changed during the migration:
 * pkg/controller/storageversionmigrator.
 */
const NOT_UPDATED = "have not been updated";

/** The versions of a CRD that its storedVersions lacks. */
export function notInStoredVersions(crd: ReadCrd): readonly string[] {
  const stored = crd.status?.storedVersions ?? [];
  return crd.spec.versions.map(({ name }) => name).filter((name) => !stored.includes(name));
}

/**
 * Why the storedVersions of a CRD proves nothing about the versions that it lacks, by the condition that Kubernetes'
 * own migrator leaves on it; `undefined` where nothing speaks against it. Where a migration of the CRD has succeeded,
 * that migrator prunes when the next one begins, before the first object is rewritten. Only a success that ends on the
 * CRD that it began with has rewritten every object: docs/comparison.md. The condition outlives the migration.
 */
export function pruneDoubtOf(crd: ReadCrd): string | undefined {
  const condition = (crd.status?.conditions ?? []).find(isOfMigrator);
  return condition === undefined || notInStoredVersions(crd).length === 0 ? undefined : doubtOf(condition);
}

/**
 * The conditions of a CRD without the one of a migration that ended without a success, for a run that has proven every
 * object since: beside its prune the condition would say for good that nothing proves it. One that says that a
 * migration runs stays.
 * @returns `undefined` where there is none to take off
 */
export function conditionsWithoutDoubt({ status }: ReadCrd): readonly Condition[] | undefined {
  const conditions = status?.conditions ?? [];
  const doubtful = conditions.find((one) => isOfMigrator(one) && one.status !== "True" && doubtOf(one) !== undefined);
  return doubtful && conditions.filter((one) => one !== doubtful);
}

function isOfMigrator({ type }: Condition): boolean {
  return type === STORAGE_MIGRATING;
}

function doubtOf({ message = "", reason, status }: Condition): string | undefined {
  if (status === "True") {
    return `its condition ${STORAGE_MIGRATING} says that one began, which prunes, and none has succeeded since`;
  }
  if (reason !== "MigrationSucceeded") {
    return `its condition ${STORAGE_MIGRATING} says that the last one did not succeed`;
  }
  return message.includes(NOT_UPDATED)
    ? `its condition ${STORAGE_MIGRATING} says that the CRD was changed during the last one`
    : undefined;
}

/** A prune of storedVersions that nothing proves. */
export interface FailedPrune {
  /** The migrations of this CRD that failed. */
  readonly failed: readonly InTreeMigration[];
  /** The versions of the CRD that storedVersions lacks: objects may be stored in them all the same. */
  readonly versions: readonly string[];
}

/** The migrations of Kubernetes' own migrator that failed: it prunes storedVersions also where it fails. */
export function failedPruneOf(
  crd: ReadCrd & { readonly metadata: { readonly name: string } },
  inTree: readonly InTreeMigration[],
): FailedPrune {
  const failed = inTree.filter((one) => inTreeResource(one) === crd.metadata.name && inTreeState(one) === "Failed");
  return { failed, versions: notInStoredVersions(crd) };
}
