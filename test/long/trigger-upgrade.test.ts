import t from "tap";
import type { KubeObject, NewObject } from "../../src/kube/client.ts";
import type { ApiserverOptions } from "../control-plane/apiserver.ts";
import { Cluster, eventually } from "../integration/cluster.ts";
import { installSystem, startController } from "../integration/controller-fixture.ts";
import { TestKind } from "../integration/crd-fixture.ts";
import { MigrationApi, startTrigger } from "../integration/trigger-harness.ts";

const SERVED = {
  featureGates: { DynamicResourceAllocation: true, VolumeAttributesClass: true },
  runtimeConfig: { "resource.k8s.io/v1beta1": true, "storage.k8s.io/v1beta1": true },
};
const OLD: ApiserverOptions = { ...SERVED, emulatedVersion: "1.34" };
const NEW: ApiserverOptions = { ...SERVED, emulatedVersion: "1.37" };

const DEVICES = { requests: [{ name: "r", deviceClassName: "fast" }] };

/** One of each resource whose storage version differs between 1.33 and 1.36. */
const OBJECTS: readonly { readonly group: string; readonly resource: string; readonly object: NewObject }[] = [
  {
    group: "storage.k8s.io",
    resource: "volumeattributesclasses",
    object: {
      kind: "VolumeAttributesClass",
      metadata: { name: "gold" },
      driverName: "d.example.com",
      parameters: { a: "b" },
    },
  },
  {
    group: "resource.k8s.io",
    resource: "deviceclasses",
    object: { kind: "DeviceClass", metadata: { name: "fast" }, spec: { selectors: [{ cel: { expression: "true" } }] } },
  },
  {
    group: "resource.k8s.io",
    resource: "resourceclaims",
    object: { kind: "ResourceClaim", metadata: { name: "claim", namespace: "default" }, spec: { devices: DEVICES } },
  },
  {
    group: "resource.k8s.io",
    resource: "resourceclaimtemplates",
    object: {
      kind: "ResourceClaimTemplate",
      metadata: { name: "template", namespace: "default" },
      spec: { spec: { devices: DEVICES } },
    },
  },
  {
    group: "resource.k8s.io",
    resource: "resourceslices",
    object: {
      kind: "ResourceSlice",
      metadata: { name: "slice" },
      spec: {
        driver: "d.example.com",
        nodeName: "node",
        pool: { name: "pool", generation: 1, resourceSliceCount: 1 },
        devices: [{ name: "device", basic: {} }],
      },
    },
  },
];
const CHANGED = OBJECTS.map(({ group, resource }) => `${resource}.${group}`);

const cluster = await Cluster.start(t, OLD);
await installSystem(cluster);
const { api, controlPlane } = cluster;
const migration = new MigrationApi(cluster);

/** Every object as its old version shows it, without the resourceVersion, which a migration changes. */
async function readAll(kind: TestKind): Promise<readonly object[]> {
  const resources = OBJECTS.map(({ group, resource }) => ({ group, version: "v1beta1", resource }));
  const all = [...resources, kind.resource("v1"), { group: "", version: "v1", resource: "configmaps" }];
  const objects: KubeObject[] = [];
  for (const resource of all) {
    objects.push(...(await api.list<KubeObject>(resource)));
  }
  return objects.map((object) => ({ ...object, metadata: { ...object.metadata, resourceVersion: "" } }));
}

async function storedVersions(): Promise<Record<string, string>> {
  const stored: Record<string, string> = {};
  for (const { resource } of OBJECTS) {
    const [object] = await controlPlane.stored.objectsUnder(`/registry/${resource}/`);
    stored[resource] = object?.apiVersion ?? "";
  }
  return stored;
}

async function hashesByName(): Promise<Map<string, string>> {
  const states = await migration.states();
  return new Map(states.map(({ metadata, status }) => [metadata.name, status?.currentStorageVersionHash ?? ""]));
}

/** Waits until there are StorageStates, and every one says that all objects are stored in the current version. */
async function untilAllPersisted(names: readonly string[]): Promise<void> {
  await eventually(
    async () => {
      const states = await migration.states();
      const isThere = (name: string): boolean => states.some(({ metadata }) => metadata.name === name);
      return (
        names.every(isThere) &&
        states.every(({ status }) => {
          const { currentStorageVersionHash: current, persistedStorageVersionHashes: persisted = [] } = status ?? {};
          return current !== "Unknown" && persisted.length === 1 && persisted[0] === current;
        })
      );
    },
    "every StorageState has the current hash alone",
    90_000,
  );
}

await t.test("after an upgrade the resources whose storage version changed are migrated by themselves", async (t) => {
  for (const { group, resource, object } of OBJECTS) {
    await api.create({ group, version: "v1beta1", resource }, { apiVersion: `${group}/v1beta1`, ...object });
  }
  const kind = new TestKind("upgraded");
  await cluster.createStale(kind, 3);
  // The real migration controller carries out what the trigger asks for.
  startController(t, cluster, { maxConcurrent: 16, guard: "policy" });
  const { trigger } = startTrigger(t, cluster);
  await untilAllPersisted([...CHANGED, kind.name, "configmaps"]);
  t.same(await cluster.storedAs(kind), { v1: 3 }, "the stale CRD was migrated, too");

  const before = { hashes: await hashesByName(), stored: await storedVersions(), objects: await readAll(kind) };
  const migrations = await migration.migrations();
  t.same(new Set(Object.values(before.stored)), new Set(["storage.k8s.io/v1beta1", "resource.k8s.io/v1beta2"]));
  await controlPlane.restartApiserver(0, NEW);
  trigger.pollSoon();
  await eventually(
    async () => (await hashesByName()).get(CHANGED[0] ?? "") !== before.hashes.get(CHANGED[0] ?? ""),
    "the change of the hash is seen",
  );
  await untilAllPersisted(CHANGED);

  const after = await hashesByName();
  const changed = [...before.hashes].filter(([name, hash]) => after.get(name) !== hash).map(([name]) => name);
  t.same(new Set(changed), new Set(CHANGED), "exactly these have another hash");
  t.same(new Set(Object.values(await storedVersions())), new Set(["storage.k8s.io/v1", "resource.k8s.io/v1"]));
  // A custom resource is not served for a moment after a restart.
  await cluster.waitForVersion(kind, "v1");
  t.same(await readAll(kind), before.objects, "every object is read back equal");
  const known = new Set(migrations.map(({ metadata }) => metadata.uid));
  const since = (await migration.migrations()).filter(({ metadata }) => !known.has(metadata.uid));
  const again = since.map(({ spec }) => `${spec.resource.resource}.${spec.resource.group ?? ""}`);
  t.same(
    again.filter((name) => before.hashes.has(name)).toSorted((a, b) => a.localeCompare(b)),
    CHANGED.toSorted((a, b) => a.localeCompare(b)),
    "and nothing else was migrated again",
  );
});

await t.test(
  "a downgrade and another upgrade leave no object of a built-in resource in the other version",
  async (t) => {
    startController(t, cluster, { maxConcurrent: 16, guard: "policy" });
    const { trigger } = startTrigger(t, cluster);
    const [name = ""] = CHANGED;
    const kind = new TestKind("downgraded");
    await cluster.createStale(kind, 3);
    await untilAllPersisted([...CHANGED, kind.name]);
    const objects = await readAll(kind);
    for (const [options, stored] of [
      [OLD, ["storage.k8s.io/v1beta1", "resource.k8s.io/v1beta2"]],
      [NEW, ["storage.k8s.io/v1", "resource.k8s.io/v1"]],
    ] as const) {
      const before = await hashesByName();
      const started = new Set((await migration.migrations()).map(({ metadata }) => metadata.uid));
      await controlPlane.restartApiserver(0, options);
      trigger.pollSoon();
      await eventually(
        async () => (await hashesByName()).get(name) !== before.get(name),
        "the change of the hash is seen",
      );
      await untilAllPersisted(CHANGED);
      t.same(new Set(Object.values(await storedVersions())), new Set(stored), "etcd holds them as this release does");
      const since = (await migration.migrations()).filter(({ metadata }) => !started.has(metadata.uid));
      const migrated = new Set(since.map(({ spec }) => `${spec.resource.resource}.${spec.resource.group ?? ""}`));
      t.same(
        CHANGED.filter((changed) => !migrated.has(changed)),
        [],
        "by a migration of each",
      );
      await cluster.waitForVersion(kind, "v1");
      t.same(await readAll(kind), objects, "every object is read back equal");
    }
  },
);
