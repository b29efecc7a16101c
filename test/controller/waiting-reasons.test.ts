import tap from "tap";
import type { MigrationCondition, MigrationState } from "../../src/api/migration.ts";
import { queued, queueOf } from "./queued-migrations.ts";

function withReason(name: string, state: MigrationState, reason?: string) {
  const condition: MigrationCondition = { type: state, status: "True", ...(reason === undefined ? {} : { reason }) };
  return queued(name, { state, conditions: [condition] });
}

await tap.test("MigrationQueue counts what migrations wait for, whether or not they hold a freeze", async (t) => {
  const queue = queueOf([
    withReason("a", "Waiting", "WaitingForWebhook"),
    withReason("b", "Running", "WaitingForWebhook"),
    withReason("c", "Waiting", "ApiServerMissing"),
    withReason("d", "Running"),
    withReason("e", "Pending", "Queued"),
    withReason("f", "Failed", "ObjectsNotMigrated"),
  ]);
  t.same(
    [...queue.waiting],
    [
      ["WaitingForWebhook", 2],
      ["ApiServerMissing", 1],
    ],
  );
  queue.set(withReason("a", "Running"));
  queue.set(withReason("b", "Succeeded", "Migrated"));
  queue.delete("c");
  t.same([...queue.waiting], []);
});

await tap.test("MigrationQueue takes no reason from a status that another client wrote", async (t) => {
  const queue = queueOf([withReason("a", "Waiting", "Made up 1"), withReason("b", "Waiting", "Made up 2")]);
  t.same([...queue.waiting], [["Other", 2]]);
});
