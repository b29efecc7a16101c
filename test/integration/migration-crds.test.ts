// The objects of the migration API: what API servers accept, refuse and show of them.
import t from "tap";
import type { StorageVersionMigration } from "../../src/api/migration.ts";
import { CRDS, MERGE_PATCH, MIGRATIONS, type NewObject, STORAGE_STATES } from "../api-client.ts";
import { Cluster } from "./cluster.ts";
import { installCrds, shippedCrds } from "./install-crds.ts";

const cluster = await Cluster.start(t);
const { api } = cluster;
await installCrds(cluster);

const API_VERSION = "migration.k8s.io/v1alpha1";

interface Schema {
  readonly type?: string;
  readonly format?: string;
  readonly maxLength?: number;
  readonly maxItems?: number;
  readonly properties?: Readonly<Record<string, Schema>>;
  readonly items?: Schema;
}

interface CrdWithSchema {
  readonly spec: {
    readonly versions: readonly { readonly schema: { readonly openAPIV3Schema: Schema } }[];
  };
}

function migration(resource: object, metadata: object = { name: "m1" }): NewObject {
  return { apiVersion: API_VERSION, kind: "StorageVersionMigration", metadata, spec: { resource } };
}

function storageState(name: string, resource: object): NewObject {
  return { apiVersion: API_VERSION, kind: "StorageState", metadata: { name }, spec: { resource } };
}

await t.test("the shipped CRDs are accepted as they are, with every condition in order", async (t) => {
  for (const { metadata } of shippedCrds()) {
    const { status } = await api.get<{ status: { conditions: readonly { type: string; status: string }[] } }>(CRDS, {
      name: metadata.name ?? "",
    });
    const isTrue = (type: string): boolean =>
      status.conditions.some((condition) => condition.type === type && condition.status === "True");
    t.ok(isTrue("Established"));
    t.ok(isTrue("NamesAccepted"));
    t.ok(isTrue("KubernetesAPIApprovalPolicyConformant"));
    t.notOk(isTrue("NonStructuralSchema"));
  }
});

await t.test("kubectl finds migrations by their short names", async (t) => {
  const { body } = await api.request<{ resources: readonly { name: string; shortNames?: string[] }[] }>({
    method: "GET",
    path: "/apis/migration.k8s.io/v1alpha1",
  });
  const found = body.resources.find(({ name }) => name === "storageversionmigrations");
  t.same(found?.shortNames, ["migration", "migrations"]);
});

await t.test("no text of a user's or the controller's is without a bound", async (t) => {
  const unbounded = (schema: Schema, path: string): readonly string[] => {
    const { properties = {}, items, type, maxLength, maxItems, format } = schema;
    const own =
      (type === "string" && maxLength === undefined && format === undefined) ||
      (type === "array" && maxItems === undefined);
    const inner = Object.entries(properties).flatMap(([name, one]) => unbounded(one, `${path}.${name}`));
    return [...(own ? [path] : []), ...inner, ...(items === undefined ? [] : unbounded(items, `${path}[]`))];
  };
  for (const crd of shippedCrds()) {
    const { spec } = crd as unknown as CrdWithSchema;
    for (const { schema } of spec.versions) {
      const { spec: ofSpec = {}, status: ofStatus = {} } = schema.openAPIV3Schema.properties ?? {};
      t.same([...unbounded(ofSpec, "spec"), ...unbounded(ofStatus, "status")], []);
    }
  }
  const long = { ...migration({ group: "", version: "v1", resource: "pods" }, { generateName: "long-" }) };
  const spec = { resource: { group: "", version: "v1", resource: "pods" }, continueToken: "t".repeat(16_385) };
  await t.rejects(api.create(MIGRATIONS, { ...long, spec }), /spec.continueToken: Too long/);
});

await t.test("objects made for kube-storage-version-migrator are accepted to the letter", async (t) => {
  // As its initializer and its trigger write them, down to the fields that they leave empty.
  const initializer = {
    ...migration({ group: "apps", version: "v1", resource: "deployments" }, { generateName: "deployments.apps-" }),
    status: {},
  };
  const created = await api.create<StorageVersionMigration>(MIGRATIONS, initializer);
  t.match(created.metadata.name, /^deployments\.apps-/);
  const core = migration({ group: "", version: "v1", resource: "pods" }, { generateName: "pods-" });
  await t.resolves(api.create(MIGRATIONS, core));
  const conditions = [
    { type: "Running", status: "False", lastUpdateTime: "2026-01-01T00:00:00Z" },
    { type: "Succeeded", status: "True", lastUpdateTime: "2026-01-01T00:00:00Z", reason: "r", message: "m" },
  ];
  const patched = await api.patch<StorageVersionMigration>(
    MIGRATIONS,
    created.metadata,
    { type: MERGE_PATCH, body: { status: { conditions } } },
    { subresource: "status" },
  );
  t.same(patched.status, { observedGeneration: -1, conditions }, "no replica has looked at it");
  const token = { type: MERGE_PATCH, body: { spec: { continueToken: "abc" } } };
  const withToken = await api.patch<StorageVersionMigration>(MIGRATIONS, created.metadata, token);
  t.equal(withToken.spec.continueToken, "abc");

  const state = storageState("deployments.apps", { group: "apps", resource: "deployments" });
  await api.create(STORAGE_STATES, state);
  const status = {
    persistedStorageVersionHashes: ["Unknown", "8aSe+NMegvE="],
    currentStorageVersionHash: "8aSe+NMegvE=",
    lastHeartbeatTime: "2026-01-01T00:00:00Z",
  };
  const options = { subresource: "status" };
  const answer = await api.patch(
    STORAGE_STATES,
    state.metadata as { name: string },
    {
      type: MERGE_PATCH,
      body: { status },
    },
    options,
  );
  t.match(answer, { status });
});

await t.test("the resource of a migration never changes", async (t) => {
  const ref = { name: "fixed" };
  await api.create(MIGRATIONS, migration({ group: "apps", version: "v1", resource: "deployments" }, ref));
  for (const resource of [{ resource: "daemonsets" }, { group: "other" }, { version: "v2" }, { version: null }]) {
    const patch = { type: MERGE_PATCH, body: { spec: { resource } } };
    await t.rejects(api.patch(MIGRATIONS, ref, patch), { status: 422, message: /never changes/ });
  }
  const labels = { type: MERGE_PATCH, body: { metadata: { labels: { a: "b" } } } };
  await t.resolves(api.patch(MIGRATIONS, ref, labels), "everything else may change");
  const removed = { type: MERGE_PATCH, body: { spec: null } };
  await t.rejects(api.patch(MIGRATIONS, ref, removed), { status: 422, message: /spec/ });
});

await t.test("a TTL is a number of seconds", async (t) => {
  const ref = { name: "with-ttl" };
  await api.create(MIGRATIONS, migration({ group: "apps", version: "v1", resource: "deployments" }, ref));
  for (const ttlSecondsAfterFinished of [-1, 1.5, "60"]) {
    const patch = { type: MERGE_PATCH, body: { spec: { ttlSecondsAfterFinished } } };
    await t.rejects(api.patch(MIGRATIONS, ref, patch), { status: 422, message: /ttlSecondsAfterFinished/ });
  }
});

await t.test("a StorageState is named after its resource", async (t) => {
  await t.resolves(api.create(STORAGE_STATES, storageState("pods", { group: "", resource: "pods" })));
  await t.resolves(api.create(STORAGE_STATES, storageState("secrets", { resource: "secrets" })));
  const wrong = storageState("widgets", { group: "example.com", resource: "widgets" });
  await t.rejects(api.create(STORAGE_STATES, wrong), { status: 422, message: /<resource>\.<group>/ });
});

await t.test("kubectl get shows resource, state, progress, reason and age", async (t) => {
  const ref = { name: "shown" };
  await api.create(MIGRATIONS, migration({ group: "example.com", version: "v1", resource: "widgets" }, ref));
  const conditions = [
    { type: "Running", status: "False" },
    { type: "Succeeded", status: "True", reason: "NothingToDo" },
  ];
  const body = { status: { conditions, progress: "7/7" } };
  await api.patch(MIGRATIONS, ref, { type: MERGE_PATCH, body }, { subresource: "status" });
  const { body: table } = await api.request<{
    columnDefinitions: readonly { name: string }[];
    rows: readonly { cells: readonly (string | number | null)[] }[];
  }>({
    method: "GET",
    path: "/apis/migration.k8s.io/v1alpha1/storageversionmigrations/shown",
    accept: "application/json;as=Table;g=meta.k8s.io;v=v1",
  });
  t.same(
    table.columnDefinitions.map(({ name }) => name),
    ["Name", "Resource", "Group", "State", "Progress", "Reason", "Age"],
  );
  t.same(table.rows[0]?.cells.slice(0, 6), ["shown", "widgets", "example.com", "Succeeded", "7/7", "NothingToDo"]);
});
