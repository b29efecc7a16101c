import tap from "tap";
import { PRIORITY_ANNOTATION } from "../../src/api/names.ts";
import { nextOf, type QueuedMigration, queuedOf } from "../../src/controller/migration-queue.ts";

function queued(name: string, fields: Partial<QueuedMigration> = {}): QueuedMigration {
  const common = { state: "Pending", isLowPriority: false, created: "2026-01-01T00:00:00Z" } as const;
  return { name, uid: name, resource: `${name}s.example.com`, ...common, ...fields };
}

function namesOf(migrations: readonly QueuedMigration[]): readonly string[] {
  return migrations.map(({ name }) => name);
}

await tap.test("nextOf() takes those that ran first, then the oldest, those of low priority last", async (t) => {
  const migrations = [
    queued("low", { isLowPriority: true, created: "2025-01-01T00:00:00Z" }),
    queued("young", { created: "2026-02-01T00:00:00Z" }),
    queued("b"),
    queued("a"),
    queued("waited", { state: "Waiting", created: "2026-03-01T00:00:00Z" }),
    queued("ran", { state: "Running", created: "2026-04-01T00:00:00Z", isLowPriority: true }),
  ];
  t.same(namesOf(nextOf(migrations, new Set(), 9)), ["waited", "ran", "a", "b", "young", "low"]);
  t.same(namesOf(nextOf(migrations, new Set(), 2)), ["waited", "ran"]);
  t.same(nextOf(migrations, new Set(), 0), []);
});

await tap.test("nextOf() never takes a finished one, nor two of one resource", async (t) => {
  const migrations = [
    queued("done", { state: "Succeeded" }),
    queued("failed", { state: "Failed" }),
    queued("first", { resource: "same" }),
    queued("second", { resource: "same", created: "2026-02-01T00:00:00Z" }),
    queued("busy", { resource: "at work" }),
  ];
  t.same(namesOf(nextOf(migrations, new Set(["at work"]), 9)), ["first"]);
});

await tap.test("queuedOf() reads a migration", async (t) => {
  const metadata = {
    name: "m",
    uid: "u",
    resourceVersion: "1",
    creationTimestamp: "2026-01-01T00:00:00Z",
    annotations: { [PRIORITY_ANNOTATION]: "low" },
  };
  const migration = { apiVersion: "v", kind: "k", metadata, spec: { resource: { version: "v1", resource: "pods" } } };
  t.same(queuedOf(migration), {
    name: "m",
    uid: "u",
    resource: "pods",
    state: "Pending",
    isLowPriority: true,
    created: "2026-01-01T00:00:00Z",
  });
});
