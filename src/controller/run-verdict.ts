import { KsvmError, messageOf } from "../errors.ts";
import { TransportError } from "../kube/errors.ts";
import { failureKindOf } from "../kube/failure.ts";
import { InTreeAtWork, StorageMigratingStuck } from "../migrator/in-tree-guard.ts";
import type { Phase } from "./migration-status.ts";

/** Errors that pass when somebody else is done: the migration waits and begins again. */
const WAITED_FOR = new Set(["ApiServerMissing", "AlreadyMigrating", "ForeignFreeze", "OwnershipLost"]);

/** The phase of a migration whose run ended with an error. */
export function phaseAfterError(error: unknown): Phase {
  const code = error instanceof KsvmError ? error.code : "Internal";
  const message = messageOf(error);
  if (error instanceof InTreeAtWork) {
    return { type: "Waiting", reason: "InTreeMigration", message };
  }
  const isWait = WAITED_FOR.has(code) || error instanceof StorageMigratingStuck || isOutage(error);
  return { type: isWait ? "Waiting" : "Failed", reason: code, message };
}

/** No answer came, however long it was tried: nobody can tell what became of the cluster. */
function isOutage(error: unknown): boolean {
  const cause = error instanceof KsvmError && error.code === "RetryBudgetExceeded" ? error.cause : error;
  return cause instanceof TransportError || (cause === error && failureKindOf(error) === "transient");
}
