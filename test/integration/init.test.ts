import t from "tap";
import type { ObjectMeta } from "../../src/api/meta.ts";
import type { StorageVersionMigration } from "../../src/api/migration.ts";
import { CREATED_BY_LABEL } from "../../src/api/names.ts";
import type { InitResult } from "../../src/initializer/initialize.ts";
import { CLUSTER_ROLES, CRDS, DEPLOYMENTS, MERGE_PATCH, MIGRATIONS } from "../../src/kube/resources.ts";
import { Cluster, eventually } from "./cluster.ts";
import { TestKind } from "./crd-fixture.ts";

const cluster = await Cluster.start(t);
const { api } = cluster;
const MIGRATIONS_CRD = { name: "storageversionmigrations.migration.k8s.io" };

async function init(...args: readonly string[]): Promise<InitResult> {
  const { code, stdout, stderr } = await cluster.ksvm(["init", "--yes", "-o", "json", ...args]);
  if (code !== 0) {
    throw new Error(stderr);
  }
  return JSON.parse(stdout) as InitResult;
}

async function namesOfMigrations(): Promise<readonly string[]> {
  const migrations = await api.list<StorageVersionMigration>(MIGRATIONS);
  return migrations.map(({ metadata }) => metadata.name).toSorted();
}

function resources({ migrations }: InitResult): readonly string[] {
  return migrations.map(({ resource }) => resource).toSorted();
}

function names(result: InitResult): readonly string[] {
  return result.migrations.map(({ name }) => name).toSorted();
}

/** As kube-storage-version-migrator ships it. */
function originalMigrator(namespace: string) {
  const labels = { app: "migrator" };
  const container = { name: "migrator", image: "storage-version-migration-migrator:v0.0.5", command: ["/migrator"] };
  return {
    apiVersion: "apps/v1",
    kind: "Deployment",
    metadata: { name: "migrator", namespace, labels },
    spec: {
      selector: { matchLabels: labels },
      template: { metadata: { labels }, spec: { containers: [container] } },
    },
  };
}

await t.test("init refuses while another migrator is active, and changes nothing", async (t) => {
  await api.create(DEPLOYMENTS, originalMigrator("default"));
  const { code, stdout, stderr } = await cluster.ksvm(["init"]);
  t.equal(code, 1);
  t.equal(stdout, "");
  t.match(
    stderr,
    /^error: .* another migrator is active: Deployment "default\/migrator" \(it runs image ".*"\).* \[OtherMigratorActive\]\n$/,
  );
  t.equal(await api.find(CRDS, MIGRATIONS_CRD), undefined, "no CRD was created");
});

await t.test("init --replace removes the other migrator and creates one migration for each resource", async (t) => {
  const kind = new TestKind("custom");
  await cluster.createCrd(kind, { storage: "v1" });
  const { code, stdout, stderr } = await cluster.ksvm(["init", "--replace", "-y"]);
  t.equal(code, 0, stderr);
  t.equal(await api.find(DEPLOYMENTS, { name: "migrator", namespace: "default" }), undefined);
  t.match(stdout, /^removed Deployment "default\/migrator"\ncreated CustomResourceDefinition "storagestates/);
  t.match(stdout, /left out "bindings": cannot be migrated: its API server does not offer list and patch\n/);
  t.match(stdout, /left out "events.events.k8s.io": shares its storage with "events"\n/);

  const migrations = await api.list<StorageVersionMigration>(MIGRATIONS);
  t.match(stdout, new RegExp(`created ${migrations.length} migrations`));
  const resources = migrations.map(({ spec }) => `${spec.resource.resource}.${spec.resource.group}`);
  t.equal(new Set(resources).size, resources.length, "one for each resource");
  for (const resource of ["secrets.", "deployments.apps", "events.", kind.name, MIGRATIONS_CRD.name]) {
    t.ok(resources.includes(resource), resource);
  }
  const secrets = migrations.find(({ spec }) => spec.resource.resource === "secrets");
  t.match(secrets?.metadata.name, /^secrets-/);
  const apps = migrations.find(({ spec }) => spec.resource.resource === "deployments");
  t.match(apps?.metadata.name, /^deployments\.apps-/);
  const { uid } = (await api.get<{ metadata: ObjectMeta }>(CRDS, MIGRATIONS_CRD)).metadata;
  t.match(apps?.metadata.ownerReferences, [{ kind: "CustomResourceDefinition", ...MIGRATIONS_CRD, uid }]);
});

await t.test("init comes to the same when it runs again, and leaves migrations of others alone", async (t) => {
  const before = await namesOfMigrations();
  const own = await api.create<StorageVersionMigration>(MIGRATIONS, {
    apiVersion: "migration.k8s.io/v1alpha1",
    kind: "StorageVersionMigration",
    metadata: { name: "by-a-user" },
    spec: { resource: { version: "v1", resource: "secrets" } },
  });
  const again = await init();
  t.same(again.crds, [
    { name: "storagestates.migration.k8s.io", result: "unchanged" },
    { name: MIGRATIONS_CRD.name, result: "unchanged" },
  ]);
  t.equal(again.deleted, before.length);
  t.equal(again.migrations.length, before.length);
  t.same(await namesOfMigrations(), [...names(again), own.metadata.name].toSorted());
  t.notOk(names(again).some((name) => before.includes(name)));
});

await t.test("init --dry-run shows what init does, and changes nothing", async (t) => {
  const before = await namesOfMigrations();
  const shown = await init("--dry-run");
  t.equal(shown.isDryRun, true);
  t.same(await namesOfMigrations(), before);
  const done = await init();
  t.same(resources(shown), resources(done));
  t.same({ ...shown, migrations: [], isDryRun: false }, { ...done, migrations: [], isDryRun: false });
  const { stdout } = await cluster.ksvm(["init", "--dry-run"]);
  t.match(stdout, new RegExp(`^would create ${done.migrations.length} migrations; nothing was changed$`, "m"));
});

await t.test("init deletes nothing without a confirmation", async (t) => {
  const before = await namesOfMigrations();
  const { code, stderr, stdout } = await cluster.ksvm(["init"]);
  t.match({ code, stdout }, { code: 2, stdout: "" });
  t.match(
    stderr,
    /^error: Cannot delete \d+ migrations of an earlier init, .*, without a confirmation, and there is no terminal to ask on: pass --yes \[Usage\]\n$/,
  );
  t.same(await namesOfMigrations(), before);
});

await t.test("init goes on where one that was killed stopped", async (t) => {
  const earlier = await init();
  for (const name of names(earlier).slice(0, 5)) {
    await api.delete(MIGRATIONS, { name });
  }
  const again = await init();
  t.equal(again.deleted, earlier.migrations.length - 5);
  t.equal(again.migrations.length, earlier.migrations.length);
});

await t.test(
  "init updates a CRD that differs, and owns the migrations by the CRD, not by the ClusterRole that is installed",
  async (t) => {
    await api.patch(CRDS, MIGRATIONS_CRD, { type: MERGE_PATCH, body: { spec: { names: { shortNames: ["old"] } } } });
    await api.create(CLUSTER_ROLES, {
      apiVersion: "rbac.authorization.k8s.io/v1",
      kind: "ClusterRole",
      metadata: { name: "system:storage-migrator" },
      rules: [],
    });
    const { crds, migrations } = await init();
    t.match(crds, [{ result: "unchanged" }, { result: "updated" }]);
    const crd = await api.get<{ metadata: ObjectMeta; spec: { names: { shortNames: string[] } } }>(
      CRDS,
      MIGRATIONS_CRD,
    );
    t.ok(crd.spec.names.shortNames.includes("migrations"));
    const created = await api.get<StorageVersionMigration>(MIGRATIONS, { name: migrations[0]?.name ?? "" });
    t.match(created.metadata.ownerReferences, [
      { kind: "CustomResourceDefinition", ...MIGRATIONS_CRD, uid: crd.metadata.uid },
    ]);
    t.equal(created.metadata.labels?.[CREATED_BY_LABEL], "init");
  },
);

await t.test("init leaves out a group whose API server is down, and says so", async (t) => {
  const apiService = { group: "apiregistration.k8s.io", version: "v1", resource: "apiservices" };
  await api.create(apiService, {
    apiVersion: "apiregistration.k8s.io/v1",
    kind: "APIService",
    metadata: { name: "v1.down.example.com" },
    spec: {
      group: "down.example.com",
      version: "v1",
      groupPriorityMinimum: 100,
      versionPriority: 100,
      insecureSkipTLSVerify: true,
      service: { name: "none", namespace: "default" },
    },
  });
  t.teardown(() => api.delete(apiService, { name: "v1.down.example.com" }));
  let result: InitResult | undefined;
  await eventually(async () => {
    result = await init();
    return result.skipped.some(({ resource }) => resource === "*.down.example.com/v1");
  }, "the group is left out");
  t.match(
    result?.skipped.find(({ resource }) => resource.startsWith("*.")),
    { reason: /^its API server does not answer discovery: ./ },
  );
  t.ok((result?.migrations.length ?? 0) > 30);
});
