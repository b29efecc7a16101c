import tap from "tap";
import type { ApiClient } from "../../src/kube/client.ts";
import { ApiError } from "../../src/kube/errors.ts";
import type { StorageVersionMigration } from "../../src/api/migration.ts";
import { apply } from "../../src/trigger/apply.ts";
import { decide } from "../../src/trigger/decide.ts";
import { MigrationIndex } from "../../src/trigger/migration-index.ts";
import { builtIn, crd, custom, migration, situation, state } from "./situation.ts";

// A stand-in: the conflict has to come between two requests of one look.
await tap.test("apply() writes no StorageState where a migration could not be disowned", async (t) => {
  const requests: string[] = [];
  const client = {
    patch: ({ resource }: { resource: string }) => {
      requests.push(resource);
      return Promise.reject(new ApiError("PATCH", 409, { text: "the object has been modified" }));
    },
  } as unknown as ApiClient;
  const foreign = migration("Succeeded", "A", { isOurs: false });
  const rolledBack = situation(builtIn("B"), state(["A"], "A"), [{ ...foreign, hash: "B" }]);
  const decision = decide(rolledBack);
  t.equal(decision.disown.length, 1);
  const index = new MigrationIndex(() => undefined);
  await t.rejects(apply({ client, index, heartbeatMs: 1 }, rolledBack, decision), /modified/);
  t.same(new Set(requests), new Set(["storageversionmigrations"]), "it is decided again before anything rests on it");
});

// The same stand-in: a user has to write between the look and the deletion.
await tap.test(
  "apply() deletes no migration that a user may have suspended since, and creates none for it",
  async (t) => {
    const running = { ...migration("Running", "A"), uid: "m", resourceVersion: "7" };
    const changed = situation(builtIn("B"), state(["A"], "A"), [running]);
    const decision = decide(changed);
    t.same([decision.remove, decision.create?.hash], [[running], "B"]);
    const requests: unknown[] = [];
    const suspended = {
      metadata: { name: running.name, uid: "m", resourceVersion: "8" },
      spec: { resource: { group: "apps", version: "v1", resource: "deployments" }, suspend: true },
    };
    const client = {
      delete: (_: unknown, { name }: { name: string }, { preconditions }: { preconditions: object }) => {
        requests.push(["delete", name, preconditions]);
        return Promise.reject(new ApiError("DELETE", 409, { text: "the object has been modified" }));
      },
      patch: (_: unknown, { name }: { name: string }, { body }: { body: object }) => {
        requests.push(["patch", name, body]);
        return Promise.resolve(suspended);
      },
    } as unknown as ApiClient;
    const index = new MigrationIndex(() => undefined);
    const { suspend: _suspend, ...spec } = suspended.spec;
    const known = { ...suspended, spec, metadata: { ...suspended.metadata, resourceVersion: "500" } };
    index.put(known as unknown as StorageVersionMigration);
    await t.rejects(apply({ client, index, heartbeatMs: 1 }, changed, decision), /modified/);
    t.same(requests, [
      ["delete", running.name, { uid: "m", resourceVersion: "7" }],
      ["patch", running.name, { metadata: { uid: "m" } }],
    ]);
    t.match(
      index.of("deployments.apps"),
      [{ isSuspended: true }],
      "the next look knows it, also after a restore of etcd",
    );
  },
);

// A stand-in: the migration has to go back in time between the look and the write.
await tap.test("apply() calls a CRD that may have flipped known by no migration that is gone", async (t) => {
  const flippedBack = crd(["v1"], { generation: 5 });
  const record = { uid: "crd-uid", generation: 3, storedVersions: ["v1"] };
  const done = migration("Succeeded", "#v1", { provenCrd: "crd-uid/5" });
  const seen = situation(custom(flippedBack), state(["#v1"], "#v1", { crd: record }), [done]);
  const decision = decide(seen);
  t.equal(decision.cause, "unchanged", "it rests on the migration");
  const requests: string[] = [];
  const client = {
    find: () => Promise.resolve(undefined),
    patch: ({ resource }: { resource: string }) => Promise.reject(requests.push(resource)),
  } as unknown as ApiClient;
  const index = new MigrationIndex(() => undefined);
  await t.rejects(apply({ client, index, heartbeatMs: 1 }, seen, decision), /is not as it was; looking again/);
  t.same(requests, []);
});

// The same stand-in.
await tap.test("apply() calls nothing completed where a migration is not over any more", async (t) => {
  const done = migration("Succeeded", "B", { uid: "m" });
  const seen = situation(builtIn("B"), state(["A", "B"], "B"), [done]);
  const decision = decide(seen);
  t.equal(decision.cause, "completed");
  const metadata = { name: done.name, uid: "m", resourceVersion: "7" };
  const succeeded = [{ type: "Succeeded", status: "True" }];
  const answers: Readonly<Record<string, object | undefined>> = {
    deleted: undefined,
    "another one": { metadata: { ...metadata, uid: "n" }, status: { conditions: succeeded } },
    "kept by a finalizer": { metadata: { ...metadata, deletionTimestamp: "2026-01-01T00:00:00Z" } },
    "running again": { metadata, status: { conditions: [{ type: "Running", status: "True" }] } },
  };
  const known: Record<string, readonly string[]> = {};
  for (const [what, answer] of Object.entries(answers)) {
    const requests: string[] = [];
    const migrationObject = answer && { spec: { resource: { resource: "deployments", version: "v1" } }, ...answer };
    const client = {
      find: () => Promise.resolve(migrationObject),
      patch: ({ resource }: { resource: string }) => Promise.reject(requests.push(resource)),
    } as unknown as ApiClient;
    const index = new MigrationIndex(() => undefined);
    await t.rejects(apply({ client, index, heartbeatMs: 1 }, seen, decision), /is not as it was; looking again/, what);
    t.same(requests, [], what);
    known[what] = index.of("deployments").map(({ uid }) => uid);
  }
  const expected = { deleted: [], "another one": ["n"], "kept by a finalizer": [], "running again": ["m"] };
  t.same(known, expected, "the next look knows it");
});
