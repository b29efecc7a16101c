import { cutText } from "../cut-text.ts";
import type { InTreeMigration } from "../in-tree/in-tree-migrations.ts";

/** `metav1.Condition`. */
export interface ServedCondition {
  readonly type: string;
  readonly status: "True" | "False";
  readonly reason: string;
  readonly message: string;
  /** RFC 3339. */
  readonly lastTransitionTime: string;
  readonly observedGeneration?: number;
}

/** How a migration ended. */
export interface ServedEnd {
  readonly type: "Succeeded" | "Failed";
  /** For the user, where it failed. */
  readonly message: string;
}

/** The API server takes no longer message. */
const MAX_MESSAGE_LENGTH = 32_768;

/*
 * Conditions as the in-tree controller writes them, with its reasons and messages:
 * https://github.com/kubernetes/kubernetes/tree/v1.36.3/pkg/controller/storageversionmigrator
 */

type Conditions = readonly unknown[];

/** The conditions of a migration that begins. */
export function begunConditions(migration: InTreeMigration, now: string): Conditions {
  return added(migration, {
    type: "Running",
    status: "True",
    reason: "MigrationRunning",
    message: "The migration is running",
    lastTransitionTime: now,
  });
}

/** The conditions of one that is over, and whose CRD does not say so yet: `Running` is still True. */
export function endedConditions(migration: InTreeMigration, end: ServedEnd, now: string): Conditions {
  const isFailed = end.type === "Failed";
  return added(migration, {
    type: end.type,
    status: "True",
    reason: isFailed ? "StorageVersionMigrationFailed" : "StorageVersionMigrationSucceeded",
    message: isFailed ? cutText(end.message, MAX_MESSAGE_LENGTH) : "",
    lastTransitionTime: now,
  });
}

/** The conditions of one of which nothing is left to do. */
export function completedConditions(migration: InTreeMigration, now: string): Conditions {
  const { generation } = migration.metadata;
  const completed: ServedCondition = {
    type: "Running",
    status: "False",
    reason: "MigrationCompleted",
    message: "Migration completed",
    lastTransitionTime: now,
    ...(generation === undefined ? {} : { observedGeneration: generation }),
  };
  return conditionsOf(migration).map((condition) => (condition.type === "Running" ? completed : condition));
}

/** As upstream: one that is there already stays as it is. */
function added(migration: InTreeMigration, condition: ServedCondition): Conditions {
  const before = conditionsOf(migration);
  return before.some(({ type }) => type === condition.type) ? before : [...before, condition];
}

function conditionsOf({ status }: InTreeMigration) {
  return status?.conditions ?? [];
}
