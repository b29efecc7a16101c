import type {
  MigrationCondition,
  MigrationCounts,
  MigrationFailure,
  MigrationState,
  MigrationStatus,
} from "../api/migration.ts";
import { cutText } from "../cut-text.ts";
import type { Counts, ObjectFailure } from "../old/migrator/rewrite/counts.ts";
import type { MigrationResult } from "../old/migrator/result.ts";

/** What a migration does now, and why. */
export interface Phase {
  readonly type: MigrationState;
  /** One word: an error code of docs/errors.md, or one of docs/migration-api.md. */
  readonly reason?: string;
  readonly message?: string;
}

/** Characters of the message of a condition: every replica keeps those of all migrations. metav1.Condition has 32,768. */
const MAX_MESSAGE_LENGTH = 4_096;
/** Characters of the reason of one failure: API servers quote whole schemas. */
const MAX_REASON_LENGTH = 1_024;

/** The order of the conditions: the printer column shows the first one that is True. */
const ORDER: readonly MigrationState[] = ["Pending", "Suspended", "Waiting", "Running", "Succeeded", "Failed"];

/**
 * The conditions in a phase, without those for kstatus (src/api/kstatus.ts). One that waits is Running as well. A condition that was never True is left out, and so is
 * Pending where it is not True: it says nothing any more.
 * `lastUpdateTime` moves only with what the condition says.
 *
 * @param now RFC 3339
 */
export function conditionsIn(
  phase: Phase,
  before: readonly MigrationCondition[],
  now: string,
): readonly MigrationCondition[] {
  const isTrue = (type: MigrationState): boolean =>
    type === phase.type || (type === "Running" && phase.type === "Waiting");
  return ORDER.flatMap((type) => {
    const old = before.find((condition) => condition.type === type);
    if (!isTrue(type)) {
      return old === undefined || type === "Pending" ? [] : [unlessSame(old, { type, status: "False" }, now)];
    }
    const why = type === phase.type ? reasonOf(phase) : {};
    return [unlessSame(old, { type, status: "True", ...why }, now)];
  });
}

function reasonOf({ reason, message }: Phase): Pick<MigrationCondition, "reason" | "message"> {
  const shown = message === undefined ? undefined : cutText(message, MAX_MESSAGE_LENGTH);
  return { ...(reason === undefined ? {} : { reason }), ...(shown === undefined ? {} : { message: shown }) };
}

function unlessSame(
  old: MigrationCondition | undefined,
  condition: MigrationCondition,
  now: string,
): MigrationCondition {
  const isSame =
    old?.status === condition.status && old.reason === condition.reason && old.message === condition.message;
  return isSame ? old : { ...condition, lastUpdateTime: now };
}

/** The counts of a run as the API has them. */
export function countsOf(counts: Readonly<Counts>): MigrationCounts {
  const { done, migrated, current, newer, gone, failed, total } = counts;
  const remaining = total === undefined ? {} : { remaining: Math.max(0, total - done) };
  return { migrated, skipped: current + newer + gone, failed, ...remaining };
}

/** A status to write: what is null is taken away. */
export type StatusChange = Omit<MigrationStatus, "completionTime"> & {
  readonly completionTime?: string | null;
};

/** The part of the status that says how far a run is. */
export function progressOf(counts: Readonly<Counts>): Pick<MigrationStatus, "counts" | "progress"> {
  const total = Math.max(counts.total ?? counts.done, counts.done);
  return { counts: countsOf(counts), progress: `${counts.done}/${total}` };
}

/** The phase that a run ends in, where no error ended it. */
export function phaseAfter(result: MigrationResult): Phase {
  const { encryption } = result;
  switch (result.outcome) {
    case "incomplete":
      return {
        type: "Failed",
        reason: "ObjectsNotMigrated",
        message: `${result.counts?.failed ?? 0} objects could not be migrated; ${whatIsLeftOf(encryption)}`,
      };
    case "nothing-to-do":
      return { type: "Succeeded", reason: "NothingToDo", message: "storedVersions was the storage version alone" };
    case "migrated":
    case "dry-run":
      return encryption === undefined
        ? { type: "Succeeded", reason: "Migrated" }
        : {
            type: "Succeeded",
            reason: "Reencrypted",
            message: `every object is encrypted by configuration ${encryption}`,
          };
  }
}

function whatIsLeftOf(encryption: string | undefined): string {
  return encryption === undefined ? "storedVersions was not pruned" : "the old key is still needed";
}

/** The part of the status that says what came of a run. */
export function reportIn(result: MigrationResult): Partial<MigrationStatus> {
  const progress = result.counts === undefined ? {} : progressOf(result.counts);
  const proven = result.crd === undefined || result.outcome !== "migrated" ? {} : { crd: result.crd };
  const failures = result.failures.length === 0 ? {} : { failures: result.failures.map(shortened) };
  return { ...progress, ...proven, ...failures };
}

function shortened({ reason, ...object }: ObjectFailure): MigrationFailure {
  return { ...object, reason: cutText(reason, MAX_REASON_LENGTH) };
}
