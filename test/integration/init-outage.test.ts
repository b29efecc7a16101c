import t, { type Test } from "tap";
import type { ObjectMeta } from "../../src/api/meta.ts";
import { resourceNameOf, type StorageVersionMigration } from "../../src/api/migration.ts";
import { systemClock } from "../../src/clock.ts";
import type { InitResult } from "../../src/initializer/initialize.ts";
import { API_SERVICES, CLUSTER_ROLES, CRDS, MERGE_PATCH, MIGRATIONS } from "../../src/kube/resources.ts";
import { ownMigrationsByCrd } from "../../src/migrations/crd-owner.ts";
import { Retrier } from "../../src/retry/retrier.ts";
import { ChaosProxy } from "../chaos/chaos-proxy.ts";
import type { Disturbance } from "../chaos/disturbance.ts";
import { Cluster, eventually } from "./cluster.ts";

const cluster = await Cluster.start(t);
const { api } = cluster;
const MIGRATIONS_CRD = { name: "storageversionmigrations.migration.k8s.io" };
const APPS = "/apis/apps/v1";

/** Has `ksvm init` ask through a proxy that disturbs requests. */
async function initThrough(t: Test, disturb: (path: string) => Disturbance["kind"] | 429 | 503, of = APPS) {
  const proxy = await ChaosProxy.start(t, cluster.controlPlane, {
    disturb: ({ path }) => {
      const kind = path === of ? disturb(path) : "none";
      return typeof kind === "number" ? { kind: "answer", status: kind } : ({ kind } as Disturbance);
    },
  });
  const { code, stdout, stderr } = await cluster.ksvm(["init", "-y", "-o", "json", "--kubeconfig", proxy.kubeconfig]);
  return { code, stderr, result: stdout === "" ? undefined : (JSON.parse(stdout) as InitResult), proxy };
}

function resourcesIn(result: InitResult | undefined): readonly string[] {
  return (result?.migrations ?? []).map(({ resource }) => resource);
}

async function migrationsOf(resource: string): Promise<readonly StorageVersionMigration[]> {
  const all = await api.list<StorageVersionMigration>(MIGRATIONS);
  return all.filter(({ spec }) => resourceNameOf(spec.resource) === resource);
}

for (const kind of [429, 503, "reset"] as const) {
  await t.test(`init asks again for a group that answers ${kind} for a while`, async (t) => {
    let left = 4;
    const { code, stderr, result } = await initThrough(t, () => (left-- > 0 ? kind : "none"));
    t.equal(code, 0, stderr);
    t.ok(left < 0, "it was asked again");
    t.same(result?.unread, []);
    t.ok(resourcesIn(result).includes("deployments.apps"));
  });
}

await t.test("init goes on where any connection is reset", async (t) => {
  let requests = 0;
  const proxy = await ChaosProxy.start(t, cluster.controlPlane, {
    disturb: () => ({ kind: ++requests % 7 === 0 ? "reset" : "none" }),
  });
  const { code, stderr } = await cluster.ksvm(["init", "-y", "--kubeconfig", proxy.kubeconfig]);
  t.equal(code, 0, stderr);
  t.ok((proxy.disturbed["reset"] ?? 0) > 5);
});

await t.test(
  "init ends with 3 and names a group that stays unreadable; the others are migrated, and of that one nothing is deleted",
  async (t) => {
    const before = await migrationsOf("deployments.apps");
    t.equal(before.length, 1, "of an earlier init");
    const { code, result } = await initThrough(t, () => 503);
    t.equal(code, 3);
    t.match(result?.unread, [{ resource: "*.apps/v1", reason: /^discovery cannot be read: / }]);
    t.ok(resourcesIn(result).includes("secrets"));
    t.notOk(resourcesIn(result).includes("deployments.apps"));
    const after = await migrationsOf("deployments.apps");
    t.same(
      after.map(({ metadata }) => metadata.uid),
      before.map(({ metadata }) => metadata.uid),
    );
    const { code: again, result: whole } = await initThrough(t, () => "none");
    t.equal(again, 0);
    t.ok(resourcesIn(whole).includes("deployments.apps"));
  },
);

await t.test("init names a group whose APIService has no endpoints, does not wait for it, and is done", async (t) => {
  const name = "v1.down.example.com";
  await api.create(API_SERVICES, {
    apiVersion: "apiregistration.k8s.io/v1",
    kind: "APIService",
    metadata: { name },
    spec: {
      group: "down.example.com",
      version: "v1",
      groupPriorityMinimum: 100,
      versionPriority: 100,
      insecureSkipTLSVerify: true,
      service: { name: "none", namespace: "default" },
    },
  });
  t.teardown(() => api.delete(API_SERVICES, { name }));
  await eventually(
    async () => (await cluster.controlPlane.request("/apis/down.example.com")).status === 200,
    "the group is listed",
  );
  const startedAt = performance.now();
  const { code, stderr, result } = await initThrough(t, () => "none");
  t.equal(code, 0, stderr);
  const found = result?.skipped.find(({ resource }) => resource === "*.down.example.com/v1");
  t.match(found?.reason, /^its API server does not answer discovery: ./);
  t.same(result?.unread, []);
  t.ok((result?.migrations.length ?? 0) > 30);
  t.comment(`init took ${Math.round(performance.now() - startedAt)} ms`);
});

await t.test("migrations outlive the ClusterRole that owned them, and the garbage collector", async (t) => {
  const retrier = new Retrier({ clock: systemClock, random: Math.random });
  const { signal } = new AbortController();
  const context = { client: api, clock: systemClock, retrier, signal };
  const { result } = await initThrough(t, () => "none");
  const role = await api.create<{ metadata: ObjectMeta }>(CLUSTER_ROLES, {
    apiVersion: "rbac.authorization.k8s.io/v1",
    kind: "ClusterRole",
    metadata: { name: "system:storage-migrator" },
    rules: [],
  });
  const [first, second, third] = (result?.migrations ?? []).map(({ name }) => name);
  const ownerReferences = [
    {
      apiVersion: "rbac.authorization.k8s.io/v1",
      kind: "ClusterRole",
      name: role.metadata.name,
      uid: role.metadata.uid,
    },
  ];
  for (const name of [first, second, third]) {
    const patch = { type: MERGE_PATCH, body: { metadata: { ownerReferences } } };
    await api.patch(MIGRATIONS, { name: name ?? "" }, patch);
  }
  t.match(await ownMigrationsByCrd(context), { changed: 3, refused: [] });
  t.match(await ownMigrationsByCrd(context), { changed: 0, refused: [] }, "once");
  const { uid } = (await api.get<{ metadata: ObjectMeta }>(CRDS, MIGRATIONS_CRD)).metadata;
  const owned = await api.get<StorageVersionMigration>(MIGRATIONS, { name: first ?? "" });
  t.match(owned.metadata.ownerReferences, [{ kind: "CustomResourceDefinition", ...MIGRATIONS_CRD, uid }]);

  // The negative control: what the role owns is collected.
  const control = await api.create<StorageVersionMigration>(MIGRATIONS, {
    apiVersion: "migration.k8s.io/v1alpha1",
    kind: "StorageVersionMigration",
    metadata: { name: "owned-by-the-role", ownerReferences },
    spec: { resource: { version: "v1", resource: "secrets" } },
  });
  await cluster.controlPlane.startControllerManager({ controllers: ["garbage-collector-controller"] });
  await api.delete(CLUSTER_ROLES, { name: role.metadata.name });
  const isCollected = async (): Promise<boolean> =>
    (await api.find(MIGRATIONS, { name: control.metadata.name })) === undefined;
  await eventually(isCollected, "the garbage collector has deleted what the role owned", 150_000);
  const left = await api.list<StorageVersionMigration>(MIGRATIONS);
  t.equal(left.length, result?.migrations.length);
});
