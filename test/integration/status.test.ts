import t from "tap";
import { IN_TREE_APISERVER } from "../../bench/in-tree.ts";
import { MIGRATING_ANNOTATION } from "../../src/api/names.ts";
import { CRDS, MERGE_PATCH, MIGRATIONS } from "../../src/kube/resources.ts";
import type { ClusterStatus } from "../../src/plan/cluster-status.ts";
import { isAtLeast } from "../control-plane/features.ts";
import { Cluster, eventually } from "./cluster.ts";
import { TestKind } from "./crd-fixture.ts";
import { installCrds } from "./install-crds.ts";
import { startSlowRun } from "./slow-run.ts";

const IN_TREE = { group: "storagemigration.k8s.io", version: "v1beta1", resource: "storageversionmigrations" };
const HAS_IN_TREE = isAtLeast(35);
const cluster = await Cluster.start(t, {
  ...(HAS_IN_TREE ? IN_TREE_APISERVER : {}),
});
const { api } = cluster;

async function statusOf(...args: readonly string[]): Promise<ClusterStatus> {
  const { stdout } = await cluster.ksvm(["status", "-o", "json", ...args]);
  return JSON.parse(stdout) as ClusterStatus;
}

async function createMigration(kind: TestKind, conditions: readonly object[]): Promise<string> {
  const apiVersion = "migration.k8s.io/v1alpha1";
  const { metadata } = await api.create<{ metadata: { name: string } }>(MIGRATIONS, {
    apiVersion,
    kind: "StorageVersionMigration",
    metadata: { generateName: `${kind.name}-` },
    spec: { resource: { group: "example.com", version: "v1", resource: kind.plural } },
  });
  await setStatus(metadata.name, { conditions });
  return metadata.name;
}

async function setStatus(name: string, status: object): Promise<void> {
  await api.patch(MIGRATIONS, { name }, { type: MERGE_PATCH, body: { status } }, { subresource: "status" });
}

await t.test("status shows freezes where nothing is installed, those of ksvm migrate and of others", async (t) => {
  t.match(await cluster.ksvm(["status"]), {
    code: 0,
    stdout: "controller: none: there is no Lease ksvm-controller\n\nno migrations\n\nno CRD is frozen\n",
    stderr: "",
  });
  const [foreign, kind] = [new TestKind("foreign"), new TestKind("slow")];
  await cluster.createCrd(foreign, { storage: "v1" });
  await api.patch(CRDS, foreign, {
    type: MERGE_PATCH,
    body: { metadata: { annotations: { [MIGRATING_ANNOTATION]: "" } } },
  });
  const run = await startSlowRun(cluster, kind);
  const { freezes } = await statusOf();
  t.same(
    freezes.find(({ crd }) => crd === foreign.name),
    { crd: foreign.name },
  );
  t.match(
    freezes.find(({ crd }) => crd === kind.name),
    {
      owner: /./,
      lease: `kube-system/ksvm-migrate.${kind.name}`,
      since: /^20.*Z$/,
    },
  );
  t.match(await cluster.ksvm(["status", kind.name]), { code: 0, stdout: new RegExp(`\n${kind.name} .*s\n$`) });
  await run.ended;
  const unknown = await cluster.ksvm(["status", kind.name]);
  t.match(unknown, {
    code: 1,
    stdout: "",
    stderr: /^error: Cannot find a migration, a run or a freeze .* \[ResourceNotFound\]\n$/,
  });
});

await t.test("status shows migrations of ours and of Kubernetes' own migrator", async (t) => {
  await installCrds(cluster);
  const kind = new TestKind("both");
  const failed = await createMigration(kind, [
    { type: "Failed", status: "True", reason: "FreezeLifted", message: "why" },
  ]);
  const running = await createMigration(kind, [{ type: "Running", status: "True" }]);
  await setStatus(running, { progress: "20/50", counts: { migrated: 19, skipped: 0, failed: 1, remaining: 30 } });
  if (HAS_IN_TREE) {
    await api.create(IN_TREE, {
      apiVersion: "storagemigration.k8s.io/v1beta1",
      kind: "StorageVersionMigration",
      metadata: { name: kind.plural },
      spec: { resource: { group: "example.com", resource: kind.plural } },
    });
  }
  const inTree = { name: kind.plural, controller: "in-tree", state: "Pending", resource: kind.name };
  const { migrations } = await statusOf(kind.name);
  t.match(migrations, [
    { name: running, controller: "ksvm", state: "Running", progress: "20/50", counts: { failed: 1 } },
    ...(HAS_IN_TREE ? [inTree] : []),
    { name: failed, controller: "ksvm", state: "Failed", message: "FreezeLifted: why" },
  ]);
  t.match(await cluster.ksvm(["status", running]), { code: 0, stdout: /ksvm +Running +- +20\/50 +1 +\d+s/ });
});

await t.test("status -w shows changes until it is interrupted", async (t) => {
  const kind = new TestKind("watched");
  const name = await createMigration(kind, [{ type: "Running", status: "True" }]);
  const interruption = new AbortController();
  t.teardown(() => interruption.abort());
  let shown = "";
  const watching = cluster.ksvm(["status", "-w", kind.name], {
    signal: interruption.signal,
    onStdout: (text) => (shown += text),
  });
  await eventually(async () => shown.includes("Running"), "the table is shown");
  await setStatus(name, { progress: "5/10" });
  await eventually(async () => shown.includes(`${name}: Running 5/10\n`), "the progress is shown");
  await setStatus(name, { conditions: [{ type: "Succeeded", status: "True" }], progress: "10/10" });
  await eventually(async () => shown.includes(`${name}: Succeeded 10/10\n`), "the end is shown");
  await api.delete(MIGRATIONS, { name });
  await eventually(async () => shown.includes(`${name}: deleted\n`), "the deletion is shown");
  interruption.abort(new Error("Ctrl-C"));
  t.match(await watching, { code: 130, stderr: "" });
});
