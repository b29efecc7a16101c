import tap from "tap";
import type { StorageVersionMigration } from "../../src/api/migration.ts";
import { KnownMigrations } from "../../src/controller/known-migrations.ts";

function migration(resourceVersion: string, condition: string): StorageVersionMigration {
  return {
    apiVersion: "migration.k8s.io/v1alpha1",
    kind: "StorageVersionMigration",
    metadata: { name: "m", uid: "u", resourceVersion },
    spec: { resource: { group: "example.com", version: "v1", resource: "widgets" } },
    status: { conditions: [{ type: condition, status: "True" }] },
  } as StorageVersionMigration;
}

await tap.test(
  "KnownMigrations.end() keeps one that is over from beginning again before the feed says so",
  async (t) => {
    const known = new KnownMigrations();
    known.apply({ type: "listed", migrations: [migration("1", "Running")] });
    t.equal(known.queue.next(new Set())?.uid, "u");
    known.end("u", "Failed");
    t.equal(known.queue.next(new Set()), undefined);
    t.match(
      known.states(),
      { Running: 0, Failed: 1, Succeeded: 0 },
      "a migration that failed is not counted as succeeded",
    );
  },
);

await tap.test("KnownMigrations.end() leaves alone how the feed said that it ended", async (t) => {
  const known = new KnownMigrations();
  known.apply({ type: "listed", migrations: [migration("1", "Running")] });
  known.apply({ type: "changed", migration: migration("2", "Failed") });
  known.end("u", "Succeeded");
  t.match(known.states(), { Failed: 1, Succeeded: 0 });
  known.end("another", "Succeeded");
  t.match(known.states(), { Failed: 1, Succeeded: 0 }, "one that is gone is not counted");
});
