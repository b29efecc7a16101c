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

/** A client of a cluster without a controller, whose migrations those of `listed` are; all else as `answers` say. */
function clientOf(listed: () => readonly object[], answers: object): ApiClient {
  return {
    transport: {
      server: "https://api",
      request: ({ path }: { path: string }) => Promise.resolve().then(() => ({ body: discoveryAt(path) })),
      read: async ({ path }: { path: string }, parse: (body: Readable) => Promise<unknown>) => {
        const items = path.endsWith("/deployments") ? [] : listed();
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
    ...answers,
  } as unknown as ApiClient;
}

// A stand-in: one version of a group has to be served by an aggregated API server that is down, and the other not.
await tap.test("initialize() adds no second migration where one version of a group is down", async (t) => {
  const migrations = new Map<string, StorageVersionMigration>();
  let now = 0;
  let made = 0;
  const client = clientOf(() => [...migrations.values()], {
    delete: (_: unknown, { name }: { name: string }) => Promise.resolve(migrations.delete(name)),
    create: (_: unknown, object: StorageVersionMigration) => {
      const name = `m${++made}`;
      const created = { ...object, metadata: { ...object.metadata, name, uid: name, resourceVersion: "1" } };
      migrations.set(name, created);
      return Promise.resolve(created);
    },
  });
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

// A stand-in: between the list and the deletion lie some milliseconds, in which a user has to stop the migration.
await tap.test("initialize() deletes no migration that a user stops while it works", async (t) => {
  const labels = { "ksvm.sigs.k8s.io/created-by": "init" };
  let migration = {
    apiVersion: "migration.k8s.io/v1alpha1",
    kind: "StorageVersionMigration",
    metadata: { name: "m1", uid: "m1", resourceVersion: "1", labels },
    spec: { resource: { group: "g.io", version: "v1", resource: "foos" }, suspend: false },
  };
  let isDeleted = false;
  let created = 0;
  const client = {
    transport: {
      server: "https://api",
      request: ({ path }: { path: string }) =>
        Promise.resolve().then(() => {
          if (path !== "/apis") return { body: discoveryAt(path) };
          const versions = [{ version: "v1" }];
          const groups = [{ name: "g.io", preferredVersion: { version: "v1" }, versions }];
          return { body: { kind: "APIGroupList", groups } };
        }),
      read: async ({ path }: { path: string }, parse: (body: Readable) => Promise<unknown>) => {
        const items = path.endsWith("/deployments") ? [] : [migration];
        const list = { kind: "List", metadata: { resourceVersion: "1" }, items };
        return { body: await parse(Readable.from([Buffer.from(JSON.stringify(list))])) };
      },
    },
    find: () => Promise.resolve(undefined),
    get: () => Promise.resolve({ metadata: { name: "crd", uid: "crd" } }),
    patch: () => Promise.resolve({ metadata: { resourceVersion: "1" } }),
    listMetadata: () => Promise.resolve({ items: [], metadata: {} }),
    delete: (_: unknown, ref: object, { preconditions }: { preconditions: { resourceVersion?: string } }) => {
      const { metadata, spec } = migration;
      migration = { ...migration, metadata: { ...metadata, resourceVersion: "2" }, spec: { ...spec, suspend: true } };
      const isCurrent = [undefined, "2"].includes(preconditions.resourceVersion);
      isDeleted ||= isCurrent;
      const answer = { kind: "Status", reason: "Conflict" } as const;
      return isCurrent
        ? Promise.resolve()
        : Promise.reject(new ApiError(`DELETE ${JSON.stringify(ref)}`, 409, { answer }));
    },
    create: () => Promise.resolve({ metadata: { name: `m${++created + 1}` } }),
  } as unknown as ApiClient;
  const clock: Clock = { ...systemClock, sleep: () => Promise.resolve() };
  const retrier = new Retrier({ clock, random: () => 0.5 });
  const context = { client, clock, retrier, signal: new AbortController().signal };
  const result = await initialize(context, { namespace: "ksvm-system", replace: false });
  t.notOk(isDeleted);
  t.equal(created, 0, "nor does its resource get another one that runs");
  t.equal(result.deleted, 0);
  t.match(result.skipped, [{ resource: "foos.g.io", reason: "its migration is suspended" }]);
});

/** An init in a cluster with one migration of an earlier one. */
function initializeAgain(answers: object): ReturnType<typeof initialize> {
  const labels = { "ksvm.sigs.k8s.io/created-by": "init" };
  const migration = {
    apiVersion: "migration.k8s.io/v1alpha1",
    kind: "StorageVersionMigration",
    metadata: { name: "m1", uid: "m1", resourceVersion: "1", labels },
    spec: { resource: { group: "g.io", version: "v1", resource: "foos" } },
  };
  const client = clientOf(() => [migration], {
    delete: () => Promise.resolve(),
    create: () => Promise.resolve({ metadata: { name: "m2" } }),
    ...answers,
  });
  const clock: Clock = { ...systemClock, sleep: () => Promise.resolve() };
  const context = {
    client,
    clock,
    retrier: new Retrier({ clock, random: () => 0.5 }),
    signal: new AbortController().signal,
  };
  return initialize(context, { namespace: "ksvm-system", replace: false });
}

/** What an API server answers that does not serve the migrations yet. */
function notServed(): Promise<never> {
  return Promise.reject(new ApiError("m1", 404, { text: "404 page not found" }));
}

// A stand-in: the API server that lists the migrations has to serve them, and the one that deletes one not yet.
await tap.test("initialize() deletes an earlier migration once the API server that is asked serves them", async (t) => {
  let asked = 0;
  const { deleted } = await initializeAgain({ delete: () => (++asked < 3 ? notServed() : Promise.resolve()) });
  t.equal(deleted, 1);
  t.equal(asked, 3);
});

// A stand-in: one API server serves both CRDs, and another one, which is asked next, does not yet.
await tap.test("initialize() changes owners once the API server that is asked serves the migrations", async (t) => {
  let asked = 0;
  const served = { items: [], metadata: {} };
  // The first two show that the CRDs are served.
  const listMetadata = (): Promise<object> => ([3, 4].includes(++asked) ? notServed() : Promise.resolve(served));
  const { migrations } = await initializeAgain({ listMetadata });
  t.equal(migrations.length, 1);
  t.equal(asked, 5);
});
