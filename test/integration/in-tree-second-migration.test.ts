import t from "tap";
import { IN_TREE_APISERVER, migrateInTree, startInTree } from "../../bench/in-tree.ts";
import { storedVersionsOf } from "../../src/api/crd.ts";
import { STORAGE_MIGRATING_CONDITION } from "../../src/api/names.ts";
import { messageOf } from "../../src/errors.ts";
import { APPLY_PATCH, CRDS, MERGE_PATCH } from "../../src/kube/resources.ts";
import { ensureBinaries } from "../control-plane/binaries.ts";
import { Cluster, eventually } from "./cluster.ts";
import { fileOf } from "./crd-file.ts";
import { TestKind } from "./crd-fixture.ts";
import { IN_TREE, V1 } from "./lost-objects.ts";
import { rejectUpdatesOf } from "./reject-updates.ts";

// The real in-tree controller, which prunes when the second migration of a CRD begins: docs/comparison.md. What it leaves
// on the CRD is all that shows it once the migration is deleted.

await ensureBinaries(["kube-controller-manager"]);
const cluster = await Cluster.start(t, IN_TREE_APISERVER);
const { api } = cluster;
const [deleted, unaware, failed, succeeded] = [
  new TestKind("deleted"),
  new TestKind("unaware"),
  new TestKind("failed"),
  new TestKind("succeeded"),
];

/** Has a CRD be one of which one migration has succeeded, as the controller says it, and whose storage version changed since. */
async function migratedOnce(kind: TestKind): Promise<void> {
  await cluster.createObjects(kind.resource("v1alpha1"), kind.objects(3, "v1alpha1"));
  const lastTransitionTime = new Date().toISOString().replace(/\.\d+/, "");
  const end = { status: "False", reason: "MigrationSucceeded", message: "", lastTransitionTime };
  const body = {
    apiVersion: "apiextensions.k8s.io/v1",
    kind: "CustomResourceDefinition",
    metadata: { name: kind.name },
    status: { conditions: [{ type: STORAGE_MIGRATING_CONDITION, ...end }], storedVersions: ["v1alpha1"] },
  };
  const options = { subresource: "status", fieldManager: "migration-runner-controller", force: true };
  await api.patch(CRDS, kind, { type: APPLY_PATCH, body }, options);
  await cluster.setVersions(kind, { storage: "v1" });
}

/** Has the controller begin a second migration, and takes that away again before it has rewritten anything. */
async function beginAndDelete(kind: TestKind): Promise<void> {
  await api.create(IN_TREE, {
    apiVersion: "storagemigration.k8s.io/v1beta1",
    kind: "StorageVersionMigration",
    metadata: { name: kind.plural },
    spec: { resource: { group: "example.com", resource: kind.plural } },
  });
  const isPruned = async (): Promise<boolean> => storedVersionsOf(await cluster.crd(kind)).length === 1;
  await eventually(isPruned, "the controller has pruned");
  await api.delete(IN_TREE, { name: kind.plural });
}

const KINDS = [deleted, unaware, failed, succeeded];
for (const kind of KINDS) {
  await cluster.createCrd(kind, { storage: "v1alpha1" });
}
for (const kind of KINDS) {
  await migratedOnce(kind);
}
const lift = await rejectUpdatesOf(cluster, failed, "w1");
const manager = await startInTree(cluster);
const { signal } = new AbortController();
const ends = [failed, succeeded].map((kind) => migrateInTree(cluster, kind, signal));
await beginAndDelete(deleted);
await beginAndDelete(unaware);

await t.test("the in-tree controller prunes when a second migration begins", async (t) => {
  for (const kind of [deleted, unaware]) {
    t.same(storedVersionsOf(await cluster.crd(kind)), ["v1"]);
  }
});

await t.test(
  "a prune when a migration began that was deleted: doctor names it, and unfreeze lists the version again",
  async (t) => {
    const { code, stdout } = await cluster.ksvm(["doctor", deleted.name]);
    t.equal(code, 5);
    t.match(stdout, /unproven-prune/);
    t.match(stdout, /stuck-storage-migrating/);
    const path = fileOf(t, deleted.manifest(V1));
    t.match(await cluster.ksvm(["check", "-f", path]), { code: 5, stdout: /data-loss/ });
    const cleared = await cluster.ksvm(["unfreeze", deleted.name, "-y"]);
    t.match(cleared, {
      code: 0,
      stdout: /cleared condition StorageMigrating.*listed v1alpha1 in storedVersions again/,
    });
    t.same([...storedVersionsOf(await cluster.crd(deleted))].toSorted(), ["v1", "v1alpha1"]);
    const refusal = await cluster.setVersions(deleted, V1).then(() => "", messageOf);
    t.match(refusal, /status\.storedVersions/, "the API server lets no version go");
    const run = await cluster.migrate([deleted.name]);
    t.equal(run.code, 0, run.stderr);
    t.same(await cluster.storedAs(deleted), { v1: 3 });
    t.same(storedVersionsOf(await cluster.crd(deleted)), ["v1"]);
    t.equal((await cluster.ksvm(["doctor", deleted.name])).code, 0);
  },
);

await t.test(
  "negative control: with the condition taken off by hand nothing shows it, and the version may leave the CRD",
  async (t) => {
    const all = (await cluster.crd(unaware)).status?.conditions ?? [];
    const conditions = all.filter(({ type }) => type !== STORAGE_MIGRATING_CONDITION);
    await api.patch(CRDS, unaware, { type: MERGE_PATCH, body: { status: { conditions } } }, { subresource: "status" });
    t.match(await cluster.migrate([unaware.name]), { code: 0, stdout: /nothing to do/ });
    await cluster.setVersions(unaware, V1);
    t.same(storedVersionsOf(await cluster.crd(unaware)), ["v1"], "the API server let v1alpha1 go, whatever etcd holds");
  },
);

await t.test(
  "a prune of a migration that failed and was deleted: the condition is enough for doctor and for a run",
  async (t) => {
    const [end] = await Promise.all(ends);
    t.equal(end?.outcome, "Failed");
    await manager.stop();
    await api.delete(IN_TREE, { name: failed.plural });
    await lift();
    t.same(storedVersionsOf(await cluster.crd(failed)), ["v1"]);
    t.ok(((await cluster.storedAs(failed))["v1alpha1"] ?? 0) > 0, "etcd holds objects in v1alpha1");
    t.match(await cluster.ksvm(["doctor", failed.name]), { code: 5, stdout: /unproven-prune/ });
    const run = await cluster.migrate([failed.name]);
    t.equal(run.code, 0, run.stderr);
    t.match(run.stdout, /may have pruned v1alpha1 all the same: every object is rewritten/);
    t.match(run.stdout, /cleared the condition StorageMigrating/);
    t.same(await cluster.storedAs(failed), { v1: 3 });
    t.same(storedVersionsOf(await cluster.crd(failed)), ["v1"]);
    t.match(await cluster.ksvm(["doctor", failed.name]), { code: 0 }, "the run has proven what the migration had not");
    t.match(await cluster.ksvm(["check", "-f", fileOf(t, failed.manifest(V1))]), { code: 0, stdout: /applicable/ });
    t.match(await cluster.migrate([failed.name]), { code: 0, stdout: /nothing to do/ });
  },
);

await t.test("negative control: a second migration that succeeded is believed", async (t) => {
  t.equal((await ends[1])?.outcome, "Succeeded");
  t.same(await cluster.storedAs(succeeded), { v1: 3 });
  t.match(await cluster.ksvm(["doctor", succeeded.name]), { code: 0 });
  t.match(await cluster.migrate([succeeded.name]), { code: 0, stdout: /nothing to do/ });
});
