import { setTimeout as sleep } from "node:timers/promises";
import t, { type Test } from "tap";
import { IN_TREE_APISERVER, MIGRATIONS as IN_TREE_MIGRATIONS, startInTree } from "../../bench/in-tree.ts";
import { storedVersionsOf } from "../../src/api/crd.ts";
import { EARLY_WEBHOOK_NAME } from "../../src/api/names.ts";
import { EARLY_REASON } from "../../src/in-tree/early-migration.ts";
import { MERGE_PATCH } from "../../src/kube/resources.ts";
import { ensureBinaries } from "../control-plane/binaries.ts";
import { createNamespace, ensure } from "./certs-fixture.ts";
import { Cluster, eventually } from "./cluster.ts";
import { GROUP, TestKind } from "./crd-fixture.ts";
import { startEarlyGuard } from "./early-guard.ts";
import { holdCreation } from "./hold-creations.ts";
import { kubectlOf } from "./kubectl.ts";

await ensureBinaries(["kube-controller-manager"]);
const cluster = await Cluster.start(t, IN_TREE_APISERVER);
const kubectl = await kubectlOf(cluster);
await createNamespace(cluster.api);
await ensure(cluster);
/** Before the controller starts: it waits for the garbage collector, which looks for new kinds every 30 seconds. */
const [unguarded, guarded] = await Promise.all([withObjects("unguarded"), withObjects("guarded")]);
await startInTree(cluster);

const SETTLE_MS = 25_000;
/** For so long a write is held after the storage version changed. */
const HELD_MS = 12_000;

async function withObjects(word: string): Promise<TestKind> {
  const kind = new TestKind(word);
  await cluster.createCrd(kind, { storage: "v1alpha1" });
  await cluster.createObjects(kind.resource("v1alpha1"), kind.objects(3, "v1alpha1"));
  return kind;
}

/** As Kubernetes advises: the CRD with its new storage version, and the migration. */
function manifestOf(kind: TestKind): object {
  const migration = {
    apiVersion: "storagemigration.k8s.io/v1beta1",
    kind: "StorageVersionMigration",
    metadata: { name: kind.plural },
    spec: { resource: { group: GROUP, resource: kind.plural } },
  };
  return { apiVersion: "v1", kind: "List", items: [kind.manifest({ storage: "v1" }), migration] };
}

/** Objects change all the while: only then the cache of the garbage collector, which the controller waits for, is soon new enough. */
function keepBusy(t: Test, kind: TestKind): void {
  const abort = new AbortController();
  const busy = (async () => {
    for (let n = 0; !abort.signal.aborted; n++) {
      const patch = { type: MERGE_PATCH, body: { metadata: { labels: { n: String(n) } } } };
      await cluster.api.patch(kind.resource("v1"), { name: "w0", namespace: "default" }, patch);
      await sleep(200);
    }
  })();
  t.teardown(async () => {
    abort.abort();
    await busy;
  });
}

async function hasMigrated({ plural }: TestKind): Promise<boolean> {
  type Found = {
    readonly status?: { readonly conditions?: readonly { readonly type: string; readonly status: string }[] };
  };
  const found = await cluster.api.find<Found>(IN_TREE_MIGRATIONS, { name: plural });
  return (found?.status?.conditions ?? []).some(({ status, type }) => type === "Succeeded" && status === "True");
}

async function isPruned(kind: TestKind): Promise<boolean> {
  return storedVersionsOf(await cluster.crd(kind)).join() === "v1";
}

function read(kind: TestKind, name: string): Promise<boolean> {
  return cluster.api.get(kind.resource("v1"), { name, namespace: "default" }).then(
    () => true,
    () => false,
  );
}

await t.test("negative control: the in-tree controller alone loses an object that is written late", async (t) => {
  keepBusy(t, unguarded);
  const late = await holdCreation(t, cluster, unguarded, { name: "late", version: "v1alpha1" });
  const applied = await kubectl(["apply", "-f", "-"], manifestOf(unguarded));
  t.equal(applied.code, 0, applied.stderr);
  await eventually(() => hasMigrated(unguarded), "the in-tree migration has succeeded");
  await eventually(() => isPruned(unguarded), "storedVersions is pruned");
  await late.letGo();
  t.same(await cluster.storedAs(unguarded), { v1: 3, v1alpha1: 1 });
  t.ok(await read(unguarded, "late"));
  await cluster.setVersions(unguarded, { storage: "v1", versions: ["v1"] });
  await eventually(async () => !(await read(unguarded, "late")), "the object cannot be read");
  t.ok(await read(unguarded, "w1"));
});

/** Applies a manifest again and again, as Flux and Argo CD do. @returns what kubectl said the first time */
async function applyUntilDone(manifest: object): Promise<string> {
  const said: string[] = [];
  const apply = async (): Promise<boolean> => {
    const { code, stderr } = await kubectl(["apply", "-f", "-"], manifest);
    said.push(stderr);
    return code === 0;
  };
  await eventually(apply, "the manifest is applied", 180_000, 1_000);
  return said[0] ?? "";
}

await t.test("with the guard in mode deny a client that retries loses nothing by the same manifest", async (t) => {
  await startEarlyGuard(t, cluster, { mode: "deny", settleMs: SETTLE_MS });
  keepBusy(t, guarded);
  const late = await holdCreation(t, cluster, guarded, { name: "late", version: "v1alpha1" });
  const startedAt = performance.now();
  const applying = applyUntilDone(manifestOf(guarded));
  await sleep(HELD_MS);
  await late.letGo();
  t.ok((await cluster.storedAs(guarded))["v1alpha1"], "late, and stored in the old version");
  const said = await applying;
  t.match(said, `admission webhook "${EARLY_WEBHOOK_NAME}" denied the request: ${EARLY_REASON}: `);
  t.match(said, /; retry in 2\d s/);
  t.ok(performance.now() - startedAt >= SETTLE_MS - 1_000, "it waited");
  await eventually(() => hasMigrated(guarded), "the in-tree migration has succeeded");
  await eventually(() => isPruned(guarded), "storedVersions is pruned");
  t.same(await cluster.storedAs(guarded), { v1: 4 });
  await cluster.setVersions(guarded, { storage: "v1", versions: ["v1"] });
  for (const name of ["late", "w0", "w1", "w2"]) t.ok(await read(guarded, name), name);
});
