import tap from "tap";
import type { StorageVersionMigration } from "../../src/api/migration.ts";
import { systemClock } from "../../src/clock.ts";
import type { ApiClient } from "../../src/kube/client.ts";
import { MigrationIndex } from "../../src/trigger/migration-index.ts";

function migrationAt(resourceVersion: string, type: "Running" | "Succeeded"): StorageVersionMigration {
  return {
    apiVersion: "migration.k8s.io/v1alpha1",
    kind: "StorageVersionMigration",
    metadata: { name: "m", uid: "u", resourceVersion },
    spec: { resource: { group: "b", version: "v1", resource: "a" } },
    status: { conditions: [{ type, status: "True" }] },
  };
}

// A stand-in: restoring an etcd under a running API server takes longer than the rest of the tests together.
await tap.test("MigrationIndex takes a list for the whole truth, also after a restore of etcd", async (t) => {
  let listed = migrationAt("900", "Succeeded");
  const stop = new AbortController();
  const client = {
    transport: {
      request: () => Promise.resolve({ body: { items: [listed], metadata: { resourceVersion: "1" } } }),
      stream: () => Promise.reject(new Error("the watch ended")),
    },
  } as unknown as ApiClient;
  const changed: string[] = [];
  const index = new MigrationIndex({ client, clock: systemClock, onChange: (name) => changed.push(name) });
  const follow = (): Promise<void> => index.follow(() => undefined, stop.signal).catch(() => undefined);
  await follow();
  t.equal(index.of("a.b")[0]?.phase, "Succeeded");
  listed = migrationAt("12", "Running");
  await follow();
  t.equal(index.of("a.b")[0]?.phase, "Running", "what succeeded before the restore has not, after it");
  t.same(changed, ["a.b", "a.b"]);
});

await tap.test("MigrationIndex forgets nothing by an answer that is no list", async (t) => {
  // One without a spec is left out, and keeps no other from being known.
  const bare = { metadata: { name: "bare", uid: "b", resourceVersion: "1" } };
  const listed = { items: [bare, migrationAt("1", "Running")], metadata: { resourceVersion: "1" } };
  for (const answer of [{}, { kind: "Status", status: "Success" }, undefined, { items: null, metadata: {} }]) {
    let body: unknown = listed;
    const client = {
      transport: {
        request: () => Promise.resolve({ body }),
        stream: () => Promise.reject(new Error("the watch ended")),
      },
    } as unknown as ApiClient;
    const index = new MigrationIndex({ client, clock: systemClock, onChange: () => undefined });
    const follow = (): Promise<unknown> =>
      index.follow(() => undefined, AbortSignal.timeout(5_000)).catch((error: unknown) => error);
    await follow();
    body = answer;
    t.match(await follow(), { message: /no list/ });
    t.equal(index.of("a.b").length, 1);
  }
});
