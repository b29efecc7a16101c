// `ksvm init`: it creates the CRDs and one migration for each resource, whatever state the cluster is in.
import t from "tap";
import type { ObjectMeta } from "../../src/api/meta.ts";
import type { StorageVersionMigration } from "../../src/api/migration.ts";
import { CREATED_BY_LABEL } from "../../src/api/names.ts";
import type { InitResult } from "../../src/initializer/initialize.ts";
import { API_SERVICES, CRDS, DEPLOYMENTS, MERGE_PATCH, MIGRATIONS } from "../api-client.ts";
import { ChaosProxy } from "../chaos/chaos-proxy.ts";
import type { Disturbance } from "../chaos/disturbance.ts";
import { Cluster, eventually } from "./cluster.ts";
import { TestKind } from "./crd-fixture.ts";
import { migrationsOf } from "./migrations.ts";

const cluster = await Cluster.start(t);
const { api } = cluster;
const MIGRATIONS_CRD = { name: "storageversionmigrations.migration.k8s.io" };

/** Runs it to its end, whose result is missing where it failed. */
async function init(...args: readonly string[]): Promise<{ readonly code: number; readonly result: InitResult }> {
  const { code, stdout, stderr } = await cluster.ksvm(["init", "--yes", "-o", "json", ...args]);
  if (stdout === "") throw new Error(stderr);
  return { code: code ?? -1, result: JSON.parse(stdout) as InitResult };
}

async function namesOfMigrations(): Promise<readonly string[]> {
  const migrations = await api.list<StorageVersionMigration>(MIGRATIONS);
  return migrations.map(({ metadata }) => metadata.name).toSorted();
}

function names({ migrations }: InitResult): readonly string[] {
  return migrations.map(({ name }) => name).toSorted();
}

function resources({ migrations }: InitResult): readonly string[] {
  return migrations.map(({ resource }) => resource).toSorted();
}

await t.test("init refuses while another migrator is active, and with --replace removes it", async (t) => {
  // As kube-storage-version-migrator ships it.
  const container = { name: "migrator", image: "storage-version-migration-migrator:v0.0.5", command: ["/migrator"] };
  const labels = { app: "migrator" };
  const ref = { name: "migrator", namespace: "default" };
  await api.create(DEPLOYMENTS, {
    apiVersion: "apps/v1",
    kind: "Deployment",
    metadata: { ...ref, labels },
    spec: {
      selector: { matchLabels: labels },
      template: { metadata: { labels }, spec: { containers: [container] } },
    },
  });
  t.match(await cluster.ksvm(["init"]), {
    code: 1,
    stdout: "",
    stderr: /^error: .*Deployment "default\/migrator".* \[OtherMigratorActive\]\n$/,
  });
  t.equal(await api.find(CRDS, MIGRATIONS_CRD), undefined, "nothing was created");

  const kind = new TestKind("custom");
  await cluster.createCrd(kind, { storage: "v1" });
  const { code, stdout, stderr } = await cluster.ksvm(["init", "--replace", "-y"]);
  t.equal(code, 0, stderr);
  t.equal(await api.find(DEPLOYMENTS, ref), undefined);
  t.match(stdout, /^removed Deployment "default\/migrator"\ncreated CustomResourceDefinition "storagestates/);
  t.match(stdout, /left out "bindings": cannot be migrated/);
  t.match(stdout, /left out "events.events.k8s.io": shares its storage with "events"\n/);

  const migrations = await api.list<StorageVersionMigration>(MIGRATIONS);
  const of = migrations.map(({ spec }) => `${spec.resource.resource}.${spec.resource.group}`);
  t.equal(new Set(of).size, of.length, "one for each resource");
  for (const resource of ["secrets.", "deployments.apps", "events.", kind.name, MIGRATIONS_CRD.name]) {
    t.ok(of.includes(resource), resource);
  }
  const apps = migrations.find(({ spec }) => spec.resource.resource === "deployments");
  t.match(apps?.metadata.name, /^deployments\.apps-/);
  t.equal(apps?.metadata.labels?.[CREATED_BY_LABEL], "init");
  const { uid } = (await api.get<{ metadata: ObjectMeta }>(CRDS, MIGRATIONS_CRD)).metadata;
  t.match(apps?.metadata.ownerReferences, [{ kind: "CustomResourceDefinition", ...MIGRATIONS_CRD, uid }]);
});

await t.test(
  "init comes to the same when it runs again, after a confirmation, and leaves migrations of others alone",
  async (t) => {
    const before = await namesOfMigrations();
    const own = await api.create<StorageVersionMigration>(MIGRATIONS, {
      apiVersion: "migration.k8s.io/v1alpha1",
      kind: "StorageVersionMigration",
      metadata: { name: "by-a-user" },
      spec: { resource: { version: "v1", resource: "secrets" } },
    });
    t.match(await cluster.ksvm(["init"]), { code: 2, stdout: "", stderr: /pass --yes \[Usage\]\n$/ });
    const { result: shown } = await init("--dry-run");
    t.equal(shown.isDryRun, true);
    t.same(await namesOfMigrations(), [...before, own.metadata.name].toSorted(), "nothing was changed");
    const { result: again } = await init();
    t.same(resources(shown), resources(again));
    t.same(
      again.crds.map(({ result }) => result),
      ["unchanged", "unchanged"],
    );
    t.equal(again.deleted, before.length);
    t.same(await namesOfMigrations(), [...names(again), own.metadata.name].toSorted());
    t.notOk(names(again).some((name) => before.includes(name)));

    // One that was killed has left some of them, and another client has changed the CRD.
    for (const name of names(again).slice(0, 5)) await api.delete(MIGRATIONS, { name });
    await api.patch(CRDS, MIGRATIONS_CRD, { type: MERGE_PATCH, body: { spec: { names: { shortNames: ["old"] } } } });
    const { result: last } = await init();
    t.match(last.crds, [{ result: "unchanged" }, { result: "updated" }]);
    t.equal(last.deleted, again.migrations.length - 5);
    t.same(resources(last), resources(again));
    const crd = await api.get<{ spec: { names: { shortNames: string[] } } }>(CRDS, MIGRATIONS_CRD);
    t.ok(crd.spec.names.shortNames.includes("migrations"));
  },
);

for (const kind of [429, 503, "reset"] as const) {
  await t.test(`init asks again for a group that answers ${kind} for a while`, async (t) => {
    let left = 4;
    const disturbance = typeof kind === "number" ? ({ kind: "answer", status: kind } as const) : ({ kind } as const);
    const proxy = await ChaosProxy.start(t, cluster.controlPlane, {
      disturb: ({ path }): Disturbance => (path === "/apis/apps/v1" && left-- > 0 ? disturbance : { kind: "none" }),
    });
    const { code, result } = await init("--kubeconfig", proxy.kubeconfig);
    t.equal(code, 0);
    t.ok(left < 0, "it was asked again");
    t.ok(resources(result).includes("deployments.apps"));
  });
}

await t.test("init goes on where any connection is reset", async (t) => {
  let requests = 0;
  const proxy = await ChaosProxy.start(t, cluster.controlPlane, {
    disturb: () => ({ kind: ++requests % 7 === 0 ? "reset" : "none" }),
  });
  t.equal((await init("--kubeconfig", proxy.kubeconfig)).code, 0);
  t.ok((proxy.disturbed["reset"] ?? 0) > 5);
});

await t.test("init ends with 3 and names a group that stays unreadable, and deletes nothing of it", async (t) => {
  const uids = async () => (await migrationsOf(cluster, "deployments.apps")).map(({ metadata }) => metadata.uid);
  const before = await uids();
  t.equal(before.length, 1, "of an earlier init");
  const proxy = await ChaosProxy.start(t, cluster.controlPlane, {
    disturb: ({ path }) => (path === "/apis/apps/v1" ? { kind: "answer", status: 503 } : { kind: "none" }),
  });
  const { code, result } = await init("--kubeconfig", proxy.kubeconfig);
  t.equal(code, 3);
  t.match(result.unread, [{ resource: "*.apps/v1", reason: /^discovery cannot be read: / }]);
  t.ok(resources(result).includes("secrets"));
  t.notOk(resources(result).includes("deployments.apps"));
  t.same(await uids(), before);
});

await t.test("init leaves out a group whose aggregated API server is down, says so, and is done", async (t) => {
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
  const { code, result } = await init();
  t.equal(code, 0);
  const found = result.skipped.find(({ resource }) => resource === "*.down.example.com/v1");
  t.match(found?.reason, /^its API server does not answer discovery: ./);
  t.ok(result.migrations.length > 30);
});
