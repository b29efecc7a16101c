import t from "tap";
import { MERGE_PATCH, STORAGE_STATES, STORAGE_VERSIONS, WEBHOOK_CONFIGURATIONS } from "../../src/kube/resources.ts";
import type { ApiserverOptions } from "../control-plane/apiserver.ts";
import { Cluster, eventually } from "../integration/cluster.ts";
import { createMigration, installSystem, startController, untilState } from "../integration/controller-fixture.ts";

const SERVED: ApiserverOptions = {
  featureGates: { VolumeAttributesClass: true, StorageVersionAPI: true, APIServerIdentity: true },
  runtimeConfig: { "storage.k8s.io/v1beta1": true, "internal.apiserver.k8s.io/v1alpha1": true },
};
/** What it stores volumeattributesclasses as differs: v1beta1 and v1. */
const OLD: ApiserverOptions = { ...SERVED, emulatedVersion: "1.34" };
const NEW: ApiserverOptions = { ...SERVED, emulatedVersion: "1.37" };

const GROUP = "storage.k8s.io";
const CLASSES = { group: GROUP, version: "v1beta1", resource: "volumeattributesclasses" };
const NAME = "volumeattributesclasses.storage.k8s.io";
/** At eight a second: long enough to restart an API server during the run. */
const MANY = 120;
const SLOWLY = ["--max-qps", "8", "--page-size", "20"];

const cluster = await Cluster.start(t, { apiservers: 2, ...OLD });
const { api, controlPlane } = cluster;
await installSystem(cluster);
const [first, second] = controlPlane.apiservers;
if (first === undefined || second === undefined) {
  throw new Error("two API servers were asked for");
}
const BOTH = ["--apiserver-endpoints", `${first.url},${second.url}`];

function classNamed(name: string) {
  return {
    apiVersion: `${GROUP}/v1beta1`,
    kind: "VolumeAttributesClass",
    metadata: { name },
    driverName: "d.example.com",
    parameters: { a: "b" },
  };
}

/** How many objects etcd holds in each version. */
async function storedAs(): Promise<Record<string, number>> {
  const counts: Record<string, number> = {};
  for (const { apiVersion } of await controlPlane.stored.objectsUnder("/registry/volumeattributesclasses/")) {
    counts[apiVersion] = (counts[apiVersion] ?? 0) + 1;
  }
  return counts;
}

/** Starts a run and shows what it writes as it goes. */
function start(args: readonly string[]) {
  const seen = { output: "" };
  const onStdout = (text: string): void => {
    seen.output += text;
  };
  return { seen, ended: cluster.migrate(args, { onStdout }) };
}

async function restartBoth(options: ApiserverOptions): Promise<void> {
  await Promise.all([0, 1].map((index) => controlPlane.restartApiserver(index, options)));
}

await t.test("migrate rewrites every object of a built-in resource: etcd holds it in the new version", async (t) => {
  const names = Array.from({ length: MANY }, (_, index) => `class${index}`);
  await cluster.createObjects(CLASSES, names.map(classNamed));
  t.same(await storedAs(), { [`${GROUP}/v1beta1`]: MANY });
  const clean = await cluster.migrate([NAME, ...BOTH]);
  t.match(clean.stdout, `${MANY} already up to date`, "nothing to rewrite before the upgrade");
  await restartBoth(NEW);
  const run = await cluster.migrate([NAME, ...BOTH]);
  t.equal(run.code, 0, run.stderr);
  t.match(run.stdout, `migrated in`);
  t.match(run.stdout, `${MANY} rewritten`);
  t.same(await storedAs(), { [`${GROUP}/v1`]: MANY });
});

await t.test(
  "an API server with another hash that joins during the run of a built-in resource makes the run begin again",
  async (t) => {
    await restartBoth(NEW);
    const { seen, ended } = start([NAME, ...BOTH, ...SLOWLY]);
    await eventually(async () => /\d\d\/\d+/.test(seen.output), "the run is under way");
    await controlPlane.restartApiserver(1, OLD);
    // Written in the old version, behind what the run has listed, and beyond its watermark.
    const created = await controlPlane.request(`/apis/${GROUP}/v1beta1/volumeattributesclasses`, {
      method: "POST",
      body: classNamed("aaa-late"),
      apiserver: 1,
    });
    t.equal(created.status, 201);
    t.equal((await storedAs())[`${GROUP}/v1beta1`], 1, "an object is stored in the old version");
    await eventually(async () => /waiting for .*it shows storageVersionHash/.test(seen.output), "the run waits for it");
    await controlPlane.restartApiserver(1, NEW);
    const { code, stderr, stdout } = await ended;
    t.equal(code, 0, stderr);
    t.match(stdout, /starting again: .*(an API server fell behind|an API server joined, left or restarted)/);
    t.notMatch(stdout, /resuming/, "nothing of the first attempt is believed");
    t.same(await storedAs(), { [`${GROUP}/v1`]: MANY + 1 }, "the late object is rewritten, too");
  },
);

await t.test("a StorageVersion that changes during the run of a built-in resource makes it begin again", async (t) => {
  const deployments = { group: "apps", version: "v1", resource: "deployments" };
  const objects = Array.from({ length: 60 }, (_, index) => ({
    apiVersion: "apps/v1",
    kind: "Deployment",
    metadata: { name: `deployment${index}`, namespace: "default" },
    spec: {
      selector: { matchLabels: { app: "a" } },
      template: { metadata: { labels: { app: "a" } }, spec: { containers: [{ name: "c", image: "i" }] } },
    },
  }));
  await cluster.createObjects(deployments, objects);
  const { seen, ended } = start(["deployments.apps", ...BOTH, ...SLOWLY]);
  await eventually(async () => /\d\/60/.test(seen.output), "the run is under way");
  const body = { metadata: { labels: { touched: "yes" } } };
  await api.patch(STORAGE_VERSIONS, { name: "apps.deployments" }, { type: MERGE_PATCH, body });
  const { code, stderr, stdout } = await ended;
  t.equal(code, 0, stderr);
  t.match(stdout, /starting again: .*another encoding in the StorageVersion/);
});

await t.test("a built-in resource whose StorageVersion shows a disagreement is not migrated", async (t) => {
  const ref = { name: "apps.deployments" };
  const before = await api.get<{ status: { storageVersions: readonly object[] } }>(STORAGE_VERSIONS, ref);
  // None that can be had here encodes deployments otherwise, so that an entry stands in for that API server.
  const other = {
    apiServerID: "other",
    encodingVersion: "apps/v1beta2",
    decodableVersions: ["apps/v1", "apps/v1beta2"],
  };
  const condition = {
    type: "AllEncodingVersionsEqual",
    status: "False",
    reason: "Test",
    message: "Test",
    lastTransitionTime: new Date().toISOString().replace(/\.\d+Z/, "Z"),
  };
  const report = (status: object): Promise<unknown> =>
    api.patch(STORAGE_VERSIONS, ref, { type: MERGE_PATCH, body: { status } }, { subresource: "status" });
  const storageVersions = [...before.status.storageVersions, other];
  await report({ commonEncodingVersion: null, conditions: [condition], storageVersions });
  const refused = await cluster.migrate(["deployments.apps", ...BOTH, "--convergence-timeout", "2s"]);
  t.equal(refused.code, 1);
  t.match(refused.stderr, /do not agree: its StorageVersion has no commonEncodingVersion \[NotConverged\]/);
  t.notMatch(refused.stdout, /rewritten|100%/, "no object was touched");
  const { seen, ended } = start(["deployments.apps", ...BOTH]);
  await eventually(async () => /waiting for every API server to agree/.test(seen.output), "the run waits");
  await report(before.status);
  const { code, stderr } = await ended;
  t.equal(code, 0, stderr);
});

await t.test("a built-in resource whose admission webhook is down waits for it, and does not fail", async (t) => {
  const namespaces = { group: "", version: "v1", resource: "namespaces" };
  const labels = { "webhook-is-down": "yes" };
  await api.create(namespaces, { apiVersion: "v1", kind: "Namespace", metadata: { name: "guarded", labels } });
  const configMaps = { group: "", version: "v1", resource: "configmaps" };
  const object = { apiVersion: "v1", kind: "ConfigMap", metadata: { name: "one", namespace: "guarded" } };
  await api.create(configMaps, object);
  await api.create(WEBHOOK_CONFIGURATIONS, {
    apiVersion: "admissionregistration.k8s.io/v1",
    kind: "ValidatingWebhookConfiguration",
    metadata: { name: "down" },
    webhooks: [
      {
        name: "down.example.com",
        clientConfig: { url: "https://127.0.0.1:1/" },
        rules: [{ apiGroups: [""], apiVersions: ["v1"], resources: ["configmaps"], operations: ["UPDATE"] }],
        namespaceSelector: { matchLabels: labels },
        sideEffects: "None",
        admissionReviewVersions: ["v1"],
      },
    ],
  });
  const touch = { type: MERGE_PATCH, body: { metadata: { labels: { touched: "yes" } } } };
  const isRefused = (): Promise<boolean> =>
    api.patch(configMaps, object.metadata, touch, { dryRun: true }).then(
      () => false,
      () => true,
    );
  await eventually(isRefused, "the webhook is in force");
  startController(t, cluster, { guard: "policy", maxFreezeIdleMs: 2_000 });
  const migration = await createMigration(cluster, configMaps);
  const waiting = await untilState(cluster, migration, ["Waiting"]);
  t.match(waiting.status?.conditions?.[0], { reason: "WaitingForWebhook", message: /down\.example\.com/ });
  await api.delete(WEBHOOK_CONFIGURATIONS, { name: "down" });
  await untilState(cluster, migration, ["Succeeded"], 60_000);
});

await t.test("--all-stale and plan go by the StorageStates of built-in resources, where there are any", async (t) => {
  const without = await cluster.migrate(["--all-stale", ...BOTH]);
  t.match(without.stderr, /built-in resources are left out: without StorageStates, ksvm cannot tell/);
  t.equal(without.code, 0);

  const resource = { group: "apps", resource: "deployments" };
  const { resources } = (await controlPlane.request("/apis/apps/v1")).body as {
    resources: { name: string; storageVersionHash: string }[];
  };
  const hash = resources.find(({ name }) => name === "deployments")?.storageVersionHash;
  const states = [
    { name: "deployments.apps", resource, persisted: ["before", hash] },
    { name: "daemonsets.apps", resource: { ...resource, resource: "daemonsets" }, persisted: [hash] },
  ];
  for (const { name, resource: of, persisted } of states) {
    const ref = { name };
    await api.create(STORAGE_STATES, {
      apiVersion: "migration.k8s.io/v1alpha1",
      kind: "StorageState",
      metadata: ref,
      spec: { resource: of },
    });
    const status = {
      currentStorageVersionHash: hash,
      persistedStorageVersionHashes: persisted,
      lastHeartbeatTime: new Date().toISOString(),
    };
    await api.patch(STORAGE_STATES, ref, { type: MERGE_PATCH, body: { status } }, { subresource: "status" });
  }
  const plan = await cluster.ksvm(["plan", "deployments.apps", "daemonsets.apps", "secrets", "-o", "wide"]);
  t.match(plan.stdout, /deployments\.apps .* migrate /);
  t.match(plan.stdout, /daemonsets\.apps .* unknown .*do not show the same storageVersionHash/, "a hash of another");
  t.match(plan.stdout, /secrets .* unknown .*it has no StorageState/);
  const run = await cluster.migrate(["--all-stale", ...BOTH]);
  t.equal(run.code, 0, run.stderr);
  t.match(run.stdout, /deployments\.apps: migrated/);
  t.notMatch(run.stdout, /daemonsets|secrets/);
  t.match(run.stderr, /StorageStates do not show how they are stored: .*daemonsets\.apps/);
});
