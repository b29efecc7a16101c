import {
  resourceNameOf,
  type StorageState,
  type StorageVersionMigration,
  stateOf,
  SYSTEM_NAMESPACE,
} from "../../src/api/migration.ts";
import { EVENTS, MERGE_PATCH, MIGRATIONS, STORAGE_STATES } from "../api-client.ts";
import { type Cluster, eventually } from "./cluster.ts";
import { GROUP, type TestKind } from "./crd-fixture.ts";
import { installCrds } from "./install-crds.ts";

// The migration API as clients of it see it.

const NAMESPACES = { group: "", version: "v1", resource: "namespaces" };

/** Installs the CRDs and the namespace of the system. */
export async function installSystem(cluster: Cluster): Promise<void> {
  await Promise.all([
    installCrds(cluster),
    cluster.api.create(NAMESPACES, { apiVersion: "v1", kind: "Namespace", metadata: { name: SYSTEM_NAMESPACE } }),
  ]);
}

/** Creates a migration of a test's CRD, or of the resource that is named. */
export async function createMigration(
  { api }: Cluster,
  of: TestKind | { readonly group: string; readonly version: string; readonly resource: string },
  annotations: Readonly<Record<string, string>> = {},
): Promise<StorageVersionMigration> {
  const resource = "plural" in of ? { group: GROUP, version: "v1", resource: of.plural } : of;
  return api.create<StorageVersionMigration>(MIGRATIONS, {
    apiVersion: "migration.k8s.io/v1alpha1",
    kind: "StorageVersionMigration",
    metadata: { generateName: `${resourceNameOf(resource)}-`, annotations },
    spec: { resource },
  });
}

/** The migration as it is now. */
export function readMigration(
  { api }: Cluster,
  { metadata }: StorageVersionMigration,
): Promise<StorageVersionMigration> {
  return api.get(MIGRATIONS, metadata);
}

/** Waits until a migration is in one of these states, and ends the wait early where it ended in another one. */
export async function untilState(
  cluster: Cluster,
  migration: StorageVersionMigration,
  states: readonly string[],
  timeoutMs?: number,
): Promise<StorageVersionMigration> {
  let found = migration;
  const isThere = async (): Promise<boolean> => {
    found = await readMigration(cluster, migration);
    return states.includes(stateOf(found)) || ["Succeeded", "Failed"].includes(stateOf(found));
  };
  await eventually(isThere, `migration ${migration.metadata.name} is ${states.join(" or ")}`, timeoutMs);
  if (!states.includes(stateOf(found))) {
    throw new Error(`migration ${migration.metadata.name} ended otherwise: ${JSON.stringify(found.status)}`);
  }
  return found;
}

/** Deletes a migration. */
export function deleteMigration({ api }: Cluster, { metadata }: StorageVersionMigration): Promise<void> {
  return api.delete(MIGRATIONS, metadata);
}

/** Changes a migration as a user does. */
export function patchMigration(
  { api }: Cluster,
  { metadata }: StorageVersionMigration,
  body: object,
): Promise<unknown> {
  return api.patch(MIGRATIONS, metadata, { type: MERGE_PATCH, body });
}

/** Writes to the status of a migration as another client. */
export function patchStatus({ api }: Cluster, { metadata }: StorageVersionMigration, status: object): Promise<unknown> {
  return api.patch(MIGRATIONS, metadata, { type: MERGE_PATCH, body: { status } }, { subresource: "status" });
}

/** The reasons of the Events about a migration, in the order in which they came. */
export async function eventReasons(
  { api }: Cluster,
  { metadata }: StorageVersionMigration,
): Promise<readonly string[]> {
  const events = await api.list<{
    involvedObject: { uid: string };
    reason: string;
    metadata: { resourceVersion: string };
  }>(EVENTS, { namespace: "default" });
  const ours = events.filter(({ involvedObject }) => involvedObject.uid === metadata.uid);
  return ours
    .toSorted((a, b) => Number(a.metadata.resourceVersion) - Number(b.metadata.resourceVersion))
    .map(({ reason }) => reason);
}

/** The migrations of a resource, as `widgets.example.com`, the oldest first. */
export async function migrationsOf({ api }: Cluster, name: string): Promise<readonly StorageVersionMigration[]> {
  const all = await api.list<StorageVersionMigration>(MIGRATIONS);
  return all
    .filter(({ spec }) => resourceNameOf(spec.resource) === name)
    .toSorted((a, b) => Number(a.metadata.resourceVersion) - Number(b.metadata.resourceVersion));
}

/** The hashes of the StorageState of a resource; `undefined` where there is none. */
export async function hashesOf({ api }: Cluster, name: string) {
  const { status } = (await api.find<StorageState>(STORAGE_STATES, { name })) ?? {};
  return (
    status && {
      persisted: status.persistedStorageVersionHashes ?? [],
      current: status.currentStorageVersionHash ?? "",
    }
  );
}

/** Waits until the StorageState of a resource says what it should. */
export async function untilHashes(
  cluster: Cluster,
  name: string,
  expected: { readonly persisted: readonly string[]; readonly current: string },
): Promise<void> {
  await eventually(
    async () => JSON.stringify(await hashesOf(cluster, name)) === JSON.stringify(expected),
    `the StorageState of ${name} has ${JSON.stringify(expected)}`,
  );
}
