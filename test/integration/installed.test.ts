// What deploy/base installs, from kubectl apply -k to kubectl delete -k: two replicas with the rights of their ServiceAccount migrate a CRD
// by themselves, one is killed, and nothing is left in the end.
import { setTimeout as sleep } from "node:timers/promises";
import t from "tap";
import { storedVersionsOf } from "../crd.ts";
import type { StorageState, StorageVersionMigration } from "../../src/api/migration.ts";
import { CERTIFICATE_SECRET } from "../../src/api/names.ts";
import { hasFreezeAnnotation } from "./frozen.ts";
import {
  CRDS,
  type KubeObject,
  MIGRATIONS,
  SECRETS,
  STORAGE_STATES,
  listedVersions,
  resourcesOf,
} from "../api-client.ts";
import { assertUnfrozen } from "./assert-no-traces.ts";
import { Cluster, eventually } from "./cluster.ts";
import { SLOWLY, spawnController, startController, untilLeading, WebhookService } from "./controller.ts";
import { TestKind } from "./crd-fixture.ts";
import { applyBase, NAMESPACE, pointWebhookAt, startAsServiceAccount } from "./installation.ts";
import { kubectlOf } from "./kubectl.ts";

// One of its own, as namespaces and owned objects are deleted here.
const cluster = await Cluster.start(t, {});
const { api } = cluster;
await cluster.controlPlane.startControllerManager({
  controllers: ["namespace-controller", "garbage-collector-controller", "serviceaccount-controller"],
});
const kubectl = await kubectlOf(cluster);

/** Every object of the cluster by what names it, but Events, which expire. */
async function everything(): Promise<readonly string[]> {
  const found: string[] = [];
  for (const { group, version } of await listedVersions(api)) {
    // Discovery goes on listing a group for a moment after its last CRD is gone.
    const resources = await resourcesOf(api, { group, version }).catch(() => []);
    for (const { name: resource, verbs } of resources) {
      if (!verbs.includes("list") || resource === "events") continue;
      const { items } = await api.listMetadata({ group, version, resource }, { limit: 5_000 });
      found.push(...items.map(({ metadata }) => [group, resource, metadata.namespace, metadata.name].join("/")));
    }
  }
  return found.toSorted();
}

// What the API server itself creates in its first seconds.
let before = await everything();
await eventually(async () => {
  const last = before;
  await sleep(1_000);
  before = await everything();
  return last.join() === before.join();
}, "the cluster stands still");

const applied = await kubectl(["apply", "--server-side", "-k", "deploy/base"]);
if (applied.code !== 0) throw new Error(applied.stderr);
const service = await WebhookService.start(t);
await pointWebhookAt(cluster, { url: `https://127.0.0.1:${service.port}/validate` });
const kubeconfig = await startAsServiceAccount(cluster, "storage-migrator");
const [calm, hit] = [new TestKind("calm"), new TestKind("hit")];
const only = `--trigger-only-resources=${calm.name},${hit.name}`;
const options = { flags: ["--trigger=on", only, ...SLOWLY], kubeconfig, service };
const first = await spawnController(t, cluster, options);
const second = await startController(t, cluster, { ...options, until: "ready" });

function isPruned(kind: TestKind): () => Promise<boolean> {
  return async () => {
    const crd = await cluster.crd(kind);
    return storedVersionsOf(crd).join() === "v1" && !hasFreezeAnnotation(crd);
  };
}

await t.test(
  "a storage version that changed is migrated by itself, and status, state and metrics say so",
  async (t) => {
    t.ok(first.isLeading() && !second.isLeading());
    await cluster.createStale(calm, 20);
    await eventually(isPruned(calm), "storedVersions is pruned");
    t.same(await cluster.storedAs(calm), { v1: 20 });
    const [migration] = await api.list<StorageVersionMigration>(MIGRATIONS);
    await eventually(async () => {
      const found = await api.get<StorageVersionMigration>(MIGRATIONS, migration?.metadata ?? { name: "" });
      return found.status?.counts?.migrated === 20;
    }, "the migration counts its objects");
    await eventually(async () => {
      const { status } = await api.get<StorageState>(STORAGE_STATES, { name: calm.name });
      return status?.persistedStorageVersionHashes?.join() === status?.currentStorageVersionHash;
    }, "the StorageState says that all objects are in the current version");
    const { text } = await first.health("/metrics");
    t.match(text, /^ksvm_leader 1$/m);
    t.match(text, new RegExp(`ksvm_objects_total\\{resource="${calm.name}",outcome="migrated"\\} 20`));
    t.match(text, new RegExp(`ksvm_stored_versions_pruned_total\\{resource="${calm.name}"\\} 1`));
    t.match((await second.health("/metrics")).text, /^ksvm_leader 0$/m);
  },
);

await t.test("kill -9 of the leader in the middle of a migration: the other replica finishes it", async (t) => {
  await cluster.createStale(hit, 60);
  await eventually(async () => ((await cluster.storedAs(hit))["v1"] ?? 0) > 10, "objects are rewritten");
  first.signal("SIGKILL");
  t.ok(((await cluster.storedAs(hit))["v1alpha1"] ?? 0) > 0, "in the middle");
  await untilLeading(second);
  await eventually(isPruned(hit), "storedVersions is pruned");
  t.same(await cluster.storedAs(hit), { v1: 60 });
  await assertUnfrozen(t, cluster, hit);
});

await t.test("a Secret that was deleted and applied again is filled at once", async (t) => {
  const ref = { namespace: NAMESPACE, name: CERTIFICATE_SECRET };
  type Secret = KubeObject & { readonly data?: Readonly<Record<string, string>> };
  const ca = async (): Promise<string> => (await api.get<Secret>(SECRETS, ref)).data?.["ca.crt"] ?? "";
  const old = await ca();
  t.ok(old);
  await api.delete(SECRETS, ref);
  await applyBase(cluster).catch(() => t.pass("the controller has taken over other fields"));
  await eventually(async () => (await ca()) !== "", "it is filled");
  t.not(await ca(), old);
});

await t.test("kubectl delete -k leaves nothing behind, also while a controller runs", async (t) => {
  await Promise.all([calm, hit].map((kind) => api.delete(CRDS, kind)));
  const during = await everything();
  t.ok(during.length > before.length + 30, "the installation is seen");
  const deleted = await kubectl(["delete", "-k", "deploy/base", "--timeout=100s"]);
  t.equal(deleted.code, 0, deleted.stderr);
  // Long enough for a controller to write again what was deleted.
  await sleep(7_000);
  t.equal((await second.health("/livez")).status, 200, "the controller still runs");
  const left = async (): Promise<readonly string[]> => (await everything()).filter((name) => !before.includes(name));
  await eventually(async () => (await left()).length === 0, "nothing is left", undefined, 1_000);
  const after = await everything();
  t.same(
    before.filter((name) => !after.includes(name)),
    [],
    "and nothing else was deleted",
  );
  t.notMatch(first.log(), /forbidden/i, "the rights of deploy/ were enough");
});
