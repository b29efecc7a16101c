import { type CustomResourceDefinition, isClean, storageVersionOf, storedVersionsOf } from "../api/crd.ts";
import { type SettleAdviceInput, settleAdviceMs } from "../apiservers/settle.ts";
import { cutText } from "../cut-text.ts";

/** What becomes of a migration of Kubernetes' own migrator that is created too early; with `off` none is. */
export const EARLY_MODES = ["warn", "deny", "off"] as const;
/** One of {@link EARLY_MODES}. */
export type EarlyMode = (typeof EARLY_MODES)[number];

/** A migration that would begin before every late write of an old version must have landed. */
export interface EarlyMigration {
  readonly crdName: string;
  readonly settleMs: number;
  /** Milliseconds until that is so. */
  readonly remainingMs: number;
  /** The versions that a late write may be stored in. */
  readonly oldVersions: readonly string[];
  /** Whether the CRD says when its versions changed. */
  readonly isStamped: boolean;
}

/** Begins what is said of a migration that is created too early. */
export const EARLY_REASON = "StorageMigrationTooEarly";

/** Of the versions in a sentence: a CRD may have any number of them. */
const MAX_VERSIONS_LENGTH = 100;

/**
 * Whether a migration of a CRD would begin too early; `undefined` where it would not. Where storedVersions holds nothing but the storage
 * version, as of a new CRD, no late write can store another one.
 * @throws {TypeError} where the CRD has no storage version, which no API server stores.
 */
export function earlyMigrationOf(crd: CustomResourceDefinition, input: SettleAdviceInput): EarlyMigration | undefined {
  const remainingMs = isClean(crd) ? 0 : settleAdviceMs(input);
  if (remainingMs === 0) {
    return undefined;
  }
  const storage = storageVersionOf(crd);
  return {
    crdName: crd.metadata.name,
    settleMs: input.settleMs,
    remainingMs,
    oldVersions: storedVersionsOf(crd).filter((version) => version !== storage),
    isStamped: input.change.at !== undefined,
  };
}

/** Whole seconds until it is no longer too early. */
export function secondsLeft({ remainingMs }: EarlyMigration): number {
  return Math.ceil(remainingMs / 1_000);
}

/** A sentence for the user, on one line, beginning with {@link EARLY_REASON}. */
export function earlyMessage(early: EarlyMigration, mode: Exclude<EarlyMode, "off">): string {
  const { crdName, isStamped, oldVersions, settleMs } = early;
  const crd = `CustomResourceDefinition "${crdName}"`;
  const why = isStamped
    ? `the versions of ${crd} changed less than ${settleMs / 1_000} s ago`
    : `the managedFields of ${crd} do not tell when its versions changed`;
  const versions = oldVersions.length === 0 ? "another version" : cutText(oldVersions.join(", "), MAX_VERSIONS_LENGTH);
  const seconds = secondsLeft(early);
  const advice = mode === "deny" ? `retry in ${seconds} s` : `create another one in ${seconds} s`;
  return (
    `${EARLY_REASON}: ${why}: a write that was under way may still be stored in ${versions} after this migration has listed the ` +
    `objects, and is lost when that version leaves the CRD; ${advice}`
  );
}
