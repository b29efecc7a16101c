import { Readable } from "node:stream";
import tap from "tap";
import type { StorageVersionMigration } from "../../src/api/migration.ts";
import { type Clock, systemClock } from "../../src/clock.ts";
import type { ApiClient } from "../../src/kube/client.ts";
import { ApiError } from "../../src/kube/errors.ts";
import { initialize } from "../../src/initializer/initialize.ts";
import { Retrier } from "../../src/retry/retrier.ts";

function discoveryAt(path: string): unknown {
  const versions = [{ version: "v1" }, { version: "v1beta1" }];
  const foos = { name: "foos", kind: "Foo", namespaced: true, verbs: ["list", "patch"], storageVersionHash: "H=" };
  switch (path) {
    case "/apis":
      return { kind: "APIGroupList", groups: [{ name: "g.io", preferredVersion: { version: "v1" }, versions }] };
    case "/apis/g.io/v1":
      return { kind: "APIResourceList", groupVersion: "g.io/v1", resources: [foos] };
    case "/api/v1":
      return { kind: "APIResourceList", groupVersion: "v1", resources: [] };
    default:
      throw new ApiError(`GET ${path}`, 503, { text: "service unavailable" });
  }
}

// A stand-in: one version of a group has to be served by an aggregated API server that is down, and the other not.
await tap.test("initialize() adds no second migration where one version of a group is down", async (t) => {
  const migrations = new Map<string, StorageVersionMigration>();
  let now = 0;
  let made = 0;
  const client = {
    transport: {
      server: "https://api",
      request: ({ path }: { path: string }) => Promise.resolve().then(() => ({ body: discoveryAt(path) })),
      read: async ({ path }: { path: string }, parse: (body: Readable) => Promise<unknown>) => {
        const items = path.endsWith("/deployments") ? [] : [...migrations.values()];
        const list = { kind: "List", metadata: { resourceVersion: "1" }, items };
        return { body: await parse(Readable.from([Buffer.from(JSON.stringify(list))])) };
      },
    },
    find: () => Promise.resolve(undefined),
    findIfServed: () =>
      Promise.resolve({ spec: { service: {} }, status: { conditions: [{ type: "Available", status: "False" }] } }),
    get: () => Promise.resolve({ metadata: { name: "crd", uid: "crd" } }),
    patch: () => Promise.resolve({ metadata: { resourceVersion: "1" } }),
    listMetadata: () => Promise.resolve({ items: [], metadata: {} }),
    delete: (_: unknown, { name }: { name: string }) => Promise.resolve(migrations.delete(name)),
    create: (_: unknown, object: StorageVersionMigration) => {
      const name = `m${++made}`;
      const created = { ...object, metadata: { ...object.metadata, name, uid: name, resourceVersion: "1" } };
      migrations.set(name, created);
      return Promise.resolve(created);
    },
  } as unknown as ApiClient;
  const clock: Clock = {
    ...systemClock,
    monotonic: () => now,
    now: () => now,
    sleep: (ms: number) => {
      now += ms;
      return Promise.resolve();
    },
  };
  const context = {
    client,
    clock,
    retrier: new Retrier({ clock, random: () => 0.5 }),
    signal: new AbortController().signal,
  };
  for (const deleted of [0, 1, 1]) {
    const result = await initialize(context, { namespace: "ksvm-system", replace: false });
    t.equal(result.deleted, deleted);
    t.same(
      result.migrations.map(({ resource }) => resource),
      ["foos.g.io"],
    );
    t.equal(migrations.size, 1);
  }
});
