import { isDeepStrictEqual } from "node:util";
import {
  KSTATUS_CONDITIONS,
  type MigrationCondition,
  type MigrationConditionType,
  type MigrationState,
  stateOf,
  type StorageVersionMigration,
} from "./migration.ts";

/**
 * The condition that stands for a state where kstatus reads it, which Helm, Flux and kubectl's successors of `wait` do:
 * it knows nothing of ours. A suspended migration is under way, as a suspended Job is: its objects are not migrated,
 * and it goes on once a user resumes it.
 *
 * https://github.com/fluxcd/cli-utils/blob/v1.2.2/pkg/kstatus/status/generic.go
 */
const KSTATUS_OF: Readonly<Record<MigrationState, (typeof KSTATUS_CONDITIONS)[number] | undefined>> = {
  Pending: "Reconciling",
  Running: "Reconciling",
  Waiting: "Reconciling",
  Suspended: "Reconciling",
  Failed: "Stalled",
  Succeeded: undefined,
};

/**
 * The conditions of a migration with those that kstatus reads, last: the printer column shows the first that is True.
 * They follow from the others alone, so that ksvm can correct what another client wrote.
 */
export function withKstatus(conditions: readonly MigrationCondition[]): readonly MigrationCondition[] {
  const own = conditions.filter(({ type }) => !isOfKstatus(type));
  const state = stateOf({ status: { conditions: own } });
  const type = KSTATUS_OF[state];
  if (type === undefined) {
    return own;
  }
  const shown = own.find((condition) => condition.type === state);
  return [...own, { ...shown, type, status: "True", reason: shown?.reason ?? state }];
}

/**
 * Whether kstatus reads of a migration what its state says. One without `observedGeneration` is of a CRD
 * that does not know the field: kstatus rests on the conditions then.
 */
export function isShownToKstatus({ metadata, status = {} }: StorageVersionMigration): boolean {
  const { conditions = [], observedGeneration } = status;
  const isObserved =
    observedGeneration === undefined || metadata.generation === undefined || observedGeneration === metadata.generation;
  return isObserved && isDeepStrictEqual(ofKstatus(conditions), ofKstatus(withKstatus(conditions)));
}

/** Whether a condition is there for kstatus alone. */
export function isOfKstatus(type: MigrationConditionType): boolean {
  return KSTATUS_CONDITIONS.some((one) => one === type);
}

function ofKstatus(conditions: readonly MigrationCondition[]): readonly MigrationCondition[] {
  return conditions.filter(({ type }) => isOfKstatus(type));
}
