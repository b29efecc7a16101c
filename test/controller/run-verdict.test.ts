import tap from "tap";
import { InTreeAtWork, StorageMigratingStuck } from "../../src/migrator/in-tree-guard.ts";
import { phaseAfterError } from "../../src/controller/run-verdict.ts";
import { KsvmError } from "../../src/errors.ts";
import { ApiError, TransportError } from "../../src/kube/errors.ts";

const unreachable = new TransportError("GET /x", "https://server", new Error("refused"));
const overloaded = new ApiError("GET /x", 503, { text: "later" });
const refused = new ApiError("PATCH /x", 422, { text: "no" });

for (const [error, type, reason] of [
  [new InTreeAtWork("m"), "Waiting", "InTreeMigration"],
  [new StorageMigratingStuck("c"), "Waiting", "StorageMigratingStuck"],
  [new KsvmError("AlreadyMigrating", "x"), "Waiting", "AlreadyMigrating"],
  [new KsvmError("ForeignFreeze", "x"), "Waiting", "ForeignFreeze"],
  [new KsvmError("OwnershipLost", "x"), "Waiting", "OwnershipLost"],
  [unreachable, "Waiting", "ServerUnreachable"],
  [overloaded, "Waiting", "ApiRequestFailed"],
  [new KsvmError("RetryBudgetExceeded", "x", { cause: unreachable }), "Waiting", "RetryBudgetExceeded"],
  [new KsvmError("RetryBudgetExceeded", "x", { cause: overloaded }), "Failed", "RetryBudgetExceeded"],
  [new KsvmError("FreezeLifted", "x"), "Failed", "FreezeLifted"],
  [new KsvmError("NotConverged", "x"), "Failed", "NotConverged"],
  [new KsvmError("ResourceNotFound", "x"), "Failed", "ResourceNotFound"],
  [refused, "Failed", "ApiRequestFailed"],
  [new TypeError("a fault"), "Failed", "Internal"],
] as const) {
  await tap.test(`phaseAfterError() is ${type} (${reason}) after ${error.name}: ${error.message}`, async (t) => {
    t.match(phaseAfterError(error), { type, reason, message: error.message });
  });
}
