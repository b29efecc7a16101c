import { randomUUID } from "node:crypto";
import { type CustomResourceDefinition, storageVersionHashOf } from "../test/crd.ts";
import type { StorageState, StorageVersionMigration } from "../src/api/migration.ts";
import { CRD_ANNOTATION } from "../src/api/names.ts";
import { MIGRATIONS, STORAGE_STATES } from "../test/api-client.ts";
import { formatCrdRecord } from "../src/trigger/crd-facts.ts";
import { type Cluster, eventually } from "../test/integration/cluster.ts";
import { TestKind } from "../test/integration/crd-fixture.ts";
import { putEntries } from "./etcd-writer.ts";

/** A custom resource, as a migration names it. */
export interface ScaleResource {
  readonly group: string;
  readonly resource: string;
}

/** CRDs of one group. */
const PER_GROUP = 50;
/** An API server takes some five minutes for 5,000 CRDs. */
const SERVED_TIMEOUT_MS = 1_800_000;
const CRD_PREFIX = "/registry/apiextensions.k8s.io/customresourcedefinitions/";
const STATE_PREFIX = "/registry/migration.k8s.io/storagestates/";
const MIGRATION_PREFIX = "/registry/migration.k8s.io/storageversionmigrations/";

/** The resource with this number. */
export function scaleResource(index: number): ScaleResource {
  return { group: `g${Math.floor(index / PER_GROUP)}.scale.example.com`, resource: `things${index}` };
}

/** The name of the migration with this number. */
export function migrationName(index: number): string {
  return `scale-${String(index).padStart(6, "0")}`;
}

/**
 * Makes CRDs by writing them to etcd, as copies of one that an API server stored: creating each of them costs an API
 * server seconds once there are thousands. Returns when the API server serves them all.
 */
export async function addCrds(cluster: Cluster, count: number): Promise<void> {
  const { api, controlPlane } = cluster;
  const kind = new TestKind("template");
  // Its objects can be written then: it is established.
  await cluster.createCrd(kind, { versions: ["v1"], storage: "v1" });
  const template = await controlPlane.stored.readKey(`${CRD_PREFIX}${kind.name}`);
  if (template === undefined) throw new Error("Cannot copy a CRD: it is not in etcd");
  const text = template.value.toString();
  const uids = Array.from({ length: count }, () => randomUUID());
  await putEntries(controlPlane.etcd.url, crdEntries(text, kind, uids));
  await addStates(cluster, uids);
  // One that starts registers all groups at once; one that is told of thousands left some out for a quarter of an hour.
  const [apiserver] = controlPlane.apiservers;
  await apiserver?.kill();
  apiserver?.start();
  await apiserver?.waitReady(SERVED_TIMEOUT_MS);
  const last = scaleResource(count - 1);
  const isServed = async (): Promise<boolean> => {
    const { body } = await api.request<{ groups: readonly { name: string }[] }>({
      method: "GET",
      path: "/apis",
    });
    const groups = body.groups.filter(({ name }) => name.endsWith(".scale.example.com"));
    const list = await api.listMetadata({ ...last, version: "v1" }, { limit: 1 }).then(
      () => true,
      () => false,
    );
    return list && groups.length === Math.ceil(count / PER_GROUP);
  };
  await eventually(isServed, `${count} CRDs are served`, SERVED_TIMEOUT_MS, 2_000);
}

/** What the trigger knows of them, so that it need not create thousands of StorageStates first. */
async function addStates({ api, controlPlane }: Cluster, uids: readonly string[]): Promise<void> {
  const name = "templates.example.com";
  const about = { apiVersion: "migration.k8s.io/v1alpha1", kind: "StorageState", metadata: { name } };
  await api.create(STORAGE_STATES, { ...about, spec: { resource: { group: "example.com", resource: "templates" } } });
  const entry = await controlPlane.stored.readKey(`${STATE_PREFIX}${name}`);
  if (entry === undefined) throw new Error("Cannot copy a StorageState: it is not in etcd");
  const stored = JSON.parse(entry.value.toString()) as StorageState;
  await api.delete(STORAGE_STATES, { name });
  const entries = uids.map((crdUid, index) => {
    const { group, resource } = scaleResource(index);
    const hash = storageVersionHashOf(group, "v1", `Thing${index}`);
    const annotations = { [CRD_ANNOTATION]: formatCrdRecord({ uid: crdUid, generation: 1, storedVersions: ["v1"] }) };
    const metadata = { ...stored.metadata, name: `${resource}.${group}`, uid: randomUUID(), annotations };
    const lastHeartbeatTime = new Date().toISOString().replace(/\.\d+Z$/, "Z");
    const status = { persistedStorageVersionHashes: [hash], currentStorageVersionHash: hash, lastHeartbeatTime };
    const copy = { ...stored, metadata, spec: { resource: { group, resource } }, status };
    return [`${STATE_PREFIX}${metadata.name}`, JSON.stringify(copy)] as const;
  });
  await putEntries(controlPlane.etcd.url, entries);
}

function* crdEntries(text: string, kind: TestKind, uids: readonly string[]): Generator<readonly [string, string]> {
  const uid = (JSON.parse(text) as CustomResourceDefinition).metadata.uid;
  const singular = kind.kind.toLowerCase();
  for (const [index, newUid] of uids.entries()) {
    const { group, resource } = scaleResource(index);
    const copy = text
      .replaceAll(kind.name, `${resource}.${group}`)
      .replaceAll(`"${kind.plural}"`, `"${resource}"`)
      .replaceAll(`"${singular}"`, `"thing${index}"`)
      .replaceAll(`"${kind.kind}List"`, `"Thing${index}List"`)
      .replaceAll(`"${kind.kind}"`, `"Thing${index}"`)
      .replaceAll('"example.com"', `"${group}"`)
      .replaceAll(uid, newUid);
    yield [`${CRD_PREFIX}${resource}.${group}`, copy];
  }
}

/** What a migration in the queue shows already, so that the controller need not write it. */
const QUEUED = "waits for its turn";

/** Makes migrations that are in the queue, by writing them to etcd as copies of one that an API server stored. */
export async function addMigrations(cluster: Cluster, count: number, crds: number): Promise<void> {
  const { api, controlPlane } = cluster;
  const name = "scale-template";
  const created = await api.create<StorageVersionMigration>(MIGRATIONS, newMigration(name, 0));
  const entry = await controlPlane.stored.readKey(`${MIGRATION_PREFIX}${name}`);
  if (entry === undefined) throw new Error("Cannot copy a migration: it is not in etcd");
  const stored = JSON.parse(entry.value.toString()) as StorageVersionMigration;
  await api.delete(MIGRATIONS, { name });
  const lastUpdateTime = created.metadata.creationTimestamp ?? "";
  const condition = { type: "Pending", status: "True", reason: "Queued", message: QUEUED, lastUpdateTime };
  function* entries(): Generator<readonly [string, string]> {
    for (let index = 0; index < count; index++) {
      const metadata = { ...stored.metadata, name: migrationName(index), uid: randomUUID() };
      const resource = { ...scaleResource(index % crds), version: "v1" };
      const copy = { ...stored, metadata, spec: { resource }, status: { conditions: [condition] } };
      yield [`${MIGRATION_PREFIX}${metadata.name}`, JSON.stringify(copy)];
    }
  }
  await putEntries(controlPlane.etcd.url, entries());
}

/** Makes a migration that comes before all others: it is older. */
export async function addFirstMigration(
  { api, controlPlane }: Cluster,
  name: string,
  resource: ScaleResource,
): Promise<void> {
  const spec = { resource: { ...resource, version: "v1" } };
  await api.create(MIGRATIONS, { ...newMigration(name, 0), spec });
  const key = `${MIGRATION_PREFIX}${name}`;
  const stored = JSON.parse(
    (await controlPlane.stored.readKey(key))?.value.toString() ?? "",
  ) as StorageVersionMigration;
  const metadata = { ...stored.metadata, creationTimestamp: "2026-01-01T00:00:00Z" };
  await putEntries(controlPlane.etcd.url, [[key, JSON.stringify({ ...stored, metadata })]]);
}

/** A migration of the resource with this number. */
export function newMigration(name: string, resourceIndex: number) {
  return {
    apiVersion: "migration.k8s.io/v1alpha1",
    kind: "StorageVersionMigration",
    metadata: { name },
    spec: { resource: { ...scaleResource(resourceIndex), version: "v1" } },
  };
}
