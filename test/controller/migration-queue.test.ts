import tap from "tap";
import { PRIORITY_ANNOTATION } from "../../src/api/names.ts";
import {
  nextOf,
  type QueuedMigration,
  queuedOf,
  queueOf,
  takesFreezeOver,
} from "../../src/controller/migration-queue.ts";

function queued(name: string, fields: Partial<QueuedMigration> = {}): QueuedMigration {
  const common = { state: "Pending", isSuspended: false, isLowPriority: false, conditions: [] } as const;
  const created = "2026-01-01T00:00:00Z";
  return { name, uid: name, resourceVersion: "1", resource: `${name}s.example.com`, created, ...common, ...fields };
}

function namesOf(migrations: readonly QueuedMigration[]): readonly string[] {
  return migrations.map(({ name }) => name);
}

await tap.test("queueOf() has those that ran first, then the oldest, those of low priority last", async (t) => {
  const migrations = [
    queued("low", { isLowPriority: true, created: "2025-01-01T00:00:00Z" }),
    queued("young", { created: "2026-02-01T00:00:00Z" }),
    queued("b"),
    queued("a"),
    queued("waited", { state: "Waiting", created: "2026-03-01T00:00:00Z" }),
    queued("ran", { state: "Running", created: "2026-04-01T00:00:00Z", isLowPriority: true }),
  ];
  t.same(
    namesOf(queueOf(migrations)),
    ["ran", "a", "b", "young", "waited", "low"],
    "one that waited has no precedence",
  );
  t.equal(nextOf(migrations, new Set())?.name, "ran");
  t.equal(nextOf(migrations, new Set(["rans.example.com", "as.example.com"]))?.name, "b");
  t.equal(nextOf([], new Set()), undefined);
});

await tap.test("nextOf() never takes a finished one, a suspended one, nor two of one resource", async (t) => {
  const migrations = [
    queued("done", { state: "Succeeded" }),
    queued("failed", { state: "Failed" }),
    queued("stopped", { isSuspended: true, state: "Running" }),
    queued("first", { resource: "same" }),
    queued("second", { resource: "same", created: "2026-02-01T00:00:00Z" }),
    queued("busy", { resource: "at work" }),
  ];
  t.equal(nextOf(migrations, new Set(["at work"]))?.name, "first");
  t.equal(nextOf(migrations, new Set(["at work", "same"])), undefined);
});

await tap.test(
  "takesFreezeOver() counts on no migration that is held back, or that only is in the queue",
  async (t) => {
    const ran = queued("ran", { state: "Running" });
    const { resource } = ran;
    t.ok(takesFreezeOver([ran], resource));
    t.notOk(takesFreezeOver([ran], "other"));
    t.notOk(takesFreezeOver([queued("pending", { resource })], resource), "it freezes anew");
    t.notOk(takesFreezeOver([queued("waits", { resource, state: "Waiting" })], resource));
    const suspended = queued("suspended", { resource, state: "Suspended", isSuspended: true });
    t.notOk(takesFreezeOver([suspended, ran], resource), "it does not begin while the other one is suspended");
    t.notOk(takesFreezeOver([{ ...ran, isSuspended: true }, queued("behind", { resource })], resource));
  },
);

await tap.test("queuedOf() reads a migration", async (t) => {
  const metadata = {
    name: "m",
    uid: "u",
    resourceVersion: "1",
    creationTimestamp: "2026-01-01T00:00:00Z",
    annotations: { [PRIORITY_ANNOTATION]: "low" },
  };
  const resource = { version: "v1", resource: "pods" };
  const migration = { apiVersion: "v", kind: "k", metadata, spec: { resource, suspend: true } };
  const read = {
    name: "m",
    uid: "u",
    resourceVersion: "1",
    resource: "pods",
    state: "Pending",
    isSuspended: true,
    isLowPriority: true,
    created: "2026-01-01T00:00:00Z",
    conditions: [],
  };
  t.same(queuedOf(migration), read);
  const conditions = [{ type: "Suspended", status: "True" }] as const;
  const spec = { resource };
  t.same(queuedOf({ ...migration, spec, status: { conditions, queuePosition: 3 } }), {
    ...read,
    isSuspended: false,
    state: "Suspended",
    conditions,
    queuePosition: 3,
  });
});
