import type { NamedObject } from "../kube/named-object.ts";
import type { FieldsReport } from "./rewrite/convert-fields.ts";
import type { Counts, ObjectFailure } from "./rewrite/counts.ts";

/** How a run on one resource ended, where no error ended it. */
export interface MigrationResult {
  /** `plural.group`, or the plural alone in the core group. */
  readonly resource: string;
  /**
   * - `migrated`: every object is in the storage version, and storedVersions says so
   * - `nothing-to-do`: that was so before
   * - `incomplete`: some objects could not be migrated; nothing was pruned
   * - `dry-run`: every object was tried, nothing was changed
   */
  readonly outcome: "migrated" | "nothing-to-do" | "incomplete" | "dry-run";
  readonly storageVersion?: string;
  /** `status.storedVersions` at the end. */
  readonly storedVersions?: readonly string[];
  /**
   * `uid/generation` of the CRD when every object was proven to be in the storage version, and that could not change. What
   * came later may have been written in another one.
   */
  readonly crd?: string;
  /** The digest of the EncryptionConfiguration that every object is encrypted by, where that was looked at; see `ASSUMED`. */
  readonly encryption?: string;
  readonly counts?: Readonly<Counts>;
  /** Whether everything was a dry-run: what the counts call migrated would be. */
  readonly isDryRun?: true;
  /** Whether the run went on from where an earlier attempt stood, which may have written what is counted as newer. */
  readonly isResumed?: true;
  /** What became of managedFields that named another version, where the run was to convert them. */
  readonly managedFields?: Readonly<FieldsReport>;
  /** The first hundred objects that could not be migrated. */
  readonly failures: readonly ObjectFailure[];
  /** The first hundred objects that were changed beyond their encoding, see `Counts.changed`. */
  readonly changedObjects: readonly NamedObject[];
}

/** `incomplete` where an object failed, else `otherwise`. */
export function outcomeOf(
  { counts }: { readonly counts: Readonly<Counts> },
  otherwise: MigrationResult["outcome"],
): MigrationResult["outcome"] {
  return counts.failed > 0 ? "incomplete" : otherwise;
}

/** What a result says of the objects. */
export function reportOf(
  tally: Pick<MigrationResult, "failures" | "changedObjects"> & { readonly counts: Readonly<Counts> },
): Pick<MigrationResult, "counts" | "failures" | "changedObjects"> {
  return { counts: tally.counts, failures: tally.failures, changedObjects: tally.changedObjects };
}
