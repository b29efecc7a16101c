import tap from "tap";
import type { StorageVersionMigration } from "../../src/api/migration.ts";
import { followedResult, phaseTextOf, shownCounts } from "../../src/cli/commands/followed-status.ts";

function migrationWith(status: object): StorageVersionMigration {
  return { spec: { resource: { group: "g", version: "v1", resource: "ws" } }, status } as StorageVersionMigration;
}

await tap.test("phaseTextOf() says what is waited for", async (t) => {
  t.equal(phaseTextOf(migrationWith({})), undefined);
  const running = { type: "Running", status: "True" };
  t.equal(phaseTextOf(migrationWith({ conditions: [running] })), "running");
  const waiting = { type: "Waiting", status: "True", reason: "R", message: "for a webhook" };
  t.equal(phaseTextOf(migrationWith({ conditions: [waiting, running] })), "waiting: for a webhook");
});

await tap.test("followedResult() is what a run here would have ended in", async (t) => {
  const counts = { migrated: 3, skipped: 1, failed: 0, remaining: 0 };
  const succeeded = { type: "Succeeded", status: "True", reason: "Migrated" };
  const result = followedResult(migrationWith({ counts, conditions: [succeeded] }));
  t.match(result, { resource: "ws.g", outcome: "migrated", counts: { done: 4, migrated: 3, current: 1, total: 4 } });
  const nothing = migrationWith({ conditions: [{ ...succeeded, reason: "NothingToDo" }] });
  t.match(followedResult(nothing), { outcome: "nothing-to-do" });
  t.equal(shownCounts(nothing), undefined);
  const failures = [{ namespace: "a", name: "b", reason: "c" }];
  const failed = { type: "Failed", status: "True", reason: "ObjectsNotMigrated", message: "1 object" };
  t.match(followedResult(migrationWith({ failures, conditions: [failed] })), { outcome: "incomplete", failures });
});

await tap.test("followedResult() throws the reason of a migration that failed as a whole", async (t) => {
  const failed = { type: "Failed", status: "True", reason: "NotConverged", message: "it lags" };
  t.throws(() => followedResult(migrationWith({ conditions: [failed] })), { code: "NotConverged", message: "it lags" });
  const foreign = { type: "Failed", status: "True", reason: "SomethingElse" };
  t.throws(() => followedResult(migrationWith({ conditions: [foreign] })), { code: "Internal" });
});
