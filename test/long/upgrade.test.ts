// A rolling upgrade of the API servers: built-in resources get another storage version, and API servers disagree for a while.
import t from "tap";
import { storageVersionHashOf } from "../crd.ts";
import type { StorageState } from "../../src/api/migration.ts";
import type { StorageVersion } from "../../src/apiservers/agree.ts";
import { type KubeObject, MERGE_PATCH, type Resource, STORAGE_STATES, STORAGE_VERSIONS } from "../api-client.ts";
import type { ApiserverOptions } from "../control-plane/apiserver.ts";
import { Cluster, eventually } from "../integration/cluster.ts";
import { type Controller, startController } from "../integration/controller.ts";
import { hashesOf, installSystem, migrationsOf, untilHashes } from "../integration/migrations.ts";

/**
 * The policies, which the two store differently, are served without being evaluated: an API server that evaluates them and has the
 * StorageVersion API waits for itself when it starts.
 */
const SERVED: ApiserverOptions = {
  featureGates: { MutatingAdmissionPolicy: false, StorageVersionAPI: true, APIServerIdentity: true },
  runtimeConfig: { "admissionregistration.k8s.io/v1beta1": true, "internal.apiserver.k8s.io/v1alpha1": true },
};
const OLD: ApiserverOptions = { ...SERVED, emulatedVersion: "1.34" };
const NEW: ApiserverOptions = { ...SERVED, emulatedVersion: "1.37" };
/** At eight a second: long enough to restart an API server during the run. */
const MANY = 60;
const SLOWLY = ["--max-qps", "8"];
const BINDINGS = "mutatingadmissionpolicybindings.admissionregistration.k8s.io";
/** All that the two versions store differently. */
const CHANGED = [BINDINGS, "mutatingadmissionpolicies.admissionregistration.k8s.io"];

const NAME = "deployments.apps";
/** Each built-in resource is migrated once, too: some that do not change are enough. */
const RESOURCES = [...CHANGED, NAME, "configmaps", "secrets", "daemonsets.apps"];

const hostnames = ["alpha", "beta"];
const overrides = hostnames.map((hostname) => ({ hostname }));
const root = t;
const cluster = await Cluster.start(t, { ...OLD, apiservers: 2, overrides });
const { api, controlPlane } = cluster;
await installSystem(cluster);
const endpoints = controlPlane.apiservers.map(({ url }) => url).join(",");
const BOTH = ["--apiserver-endpoints", endpoints];
let controller: Controller;

const V1 = "admissionregistration.k8s.io/v1";
const API_VERSION = "admissionregistration.k8s.io/v1beta1";
const [bindings, policies] = CHANGED.map((name) => ({
  group: "admissionregistration.k8s.io",
  version: "v1beta1",
  resource: name.split(".")[0] ?? "",
})) as [Resource, Resource];

function bindingNamed(name: string) {
  return {
    apiVersion: API_VERSION,
    kind: "MutatingAdmissionPolicyBinding",
    metadata: { name },
    spec: { policyName: "p" },
  };
}

/** Of a group that nobody serves. */
const policy = {
  apiVersion: API_VERSION,
  kind: "MutatingAdmissionPolicy",
  metadata: { name: "p" },
  spec: {
    matchConstraints: {
      resourceRules: [
        { apiGroups: ["none.example.com"], apiVersions: ["*"], operations: ["CREATE"], resources: ["*"] },
      ],
    },
    reinvocationPolicy: "Never",
    mutations: [{ patchType: "ApplyConfiguration", applyConfiguration: { expression: "Object{}" } }],
  },
};

/** How many objects of the changed resources etcd holds in each version. */
async function storedAs(): Promise<Record<string, number>> {
  const counts: Record<string, number> = {};
  for (const name of CHANGED) {
    for (const { apiVersion } of await controlPlane.stored.objectsUnder(`/registry/${name.split(".")[0]}/`)) {
      counts[apiVersion] = (counts[apiVersion] ?? 0) + 1;
    }
  }
  return counts;
}

/** Every object as its old version shows it, without the resourceVersion, which a migration changes. */
async function readAll(): Promise<readonly object[]> {
  const lists = await Promise.all([bindings, policies].map((resource) => api.list<KubeObject>(resource)));
  return lists.flat().map((object) => ({ ...object, metadata: { ...object.metadata, resourceVersion: "" } }));
}

/** Whether every StorageState says that all objects are stored in the current version. */
async function isAllCurrent(): Promise<boolean> {
  const states = await api.list<StorageState>(STORAGE_STATES);
  return states.length >= RESOURCES.length && states.every(isCurrent);
}

function isCurrent({ status }: StorageState): boolean {
  const { currentStorageVersionHash: current, persistedStorageVersionHashes: persisted = [] } = status ?? {};
  return current !== "Unknown" && persisted.length === 1 && persisted[0] === current;
}

async function hashesByName(): Promise<ReadonlyMap<string, string>> {
  const states = await api.list<StorageState>(STORAGE_STATES);
  return new Map(states.map(({ metadata, status }) => [metadata.name, status?.currentStorageVersionHash ?? ""]));
}

/** Starts a run and shows what it writes as it goes. */
function start(args: readonly string[]) {
  const seen = { output: "" };
  const onStdout = (text: string): void => void (seen.output += text);
  return {
    seen,
    ended: cluster.migrate([...args, ...BOTH, "--standalone"], { onStdout }),
  };
}

await t.test(
  "a rolling upgrade: nothing is migrated while API servers disagree, and everything that changed afterwards",
  async (t) => {
    await cluster.createObjects(
      bindings,
      Array.from({ length: MANY }, (_, index) => bindingNamed(`b${index}`)),
    );
    await api.create(policies, policy);
    const flags = [
      "--trigger=on",
      "--trigger-interval=2s",
      "--concurrent-migrations=16",
      `--trigger-only-resources=${RESOURCES.join()}`,
      `--apiserver-endpoints=${endpoints}`,
    ];
    controller = await startController(root, cluster, { flags });
    await eventually(isAllCurrent, "every resource was migrated once");
    const [before, hashes, objects] = [await storedAs(), await hashesByName(), await readAll()];
    t.notOk(
      Object.keys(before).some((version) => version.endsWith("/v1")),
      JSON.stringify(before),
    );
    const migrated = await Promise.all([...hashes.keys()].map((name) => migrationsOf(cluster, name)));

    // One API server is upgraded while a run rewrites a resource that it stores differently.
    const { seen, ended } = start([BINDINGS, ...SLOWLY, "--force"]);
    await eventually(async () => /\d\d\/\d+/.test(seen.output), "the run is under way");
    await controlPlane.restartApiserver(1, { ...NEW, hostname: "beta" });
    const created = await controlPlane.request(
      "/apis/admissionregistration.k8s.io/v1beta1/mutatingadmissionpolicybindings",
      {
        method: "POST",
        body: bindingNamed("aaa-late"),
        apiserver: 1,
      },
    );
    t.equal(created.status, 201);
    t.equal((await storedAs())[V1], 1, "behind what the run has listed, an object is stored in the new version");
    await eventually(
      async () => /waiting without a freeze: .*shows storageVersionHash/.test(seen.output),
      "the run waits",
    );
    await eventually(
      async () => (await hashesOf(cluster, BINDINGS))?.current === "Unknown",
      "the disagreement is recorded",
    );
    const during = new Set((await hashesOf(cluster, BINDINGS))?.persisted);
    t.ok(during.has(hashes.get(BINDINGS) ?? "") && during.size > 1, `all hashes are listed: ${[...during].join()}`);
    t.same(await migrationsOf(cluster, BINDINGS), [], "there is no migration meanwhile");
    t.match(controller.log(), /"msg":"A migration waits"/);
    const status = await cluster.ksvm(["status", BINDINGS]);
    t.match(
      status.stdout,
      /not known: migrations of Kubernetes' own migrator/,
      "the old API server lists them, and answers 404",
    );
    await controlPlane.restartApiserver(0, { ...NEW, hostname: "alpha" });
    const run = await ended;
    t.equal(run.code, 0, run.stderr);
    t.match(run.stdout, /beginning again: /);
    await eventually(isAllCurrent, "everything is migrated");
    t.same(await storedAs(), { [V1]: MANY + 2 }, "the late object, too");
    const read = new Set((await readAll()).map((object) => JSON.stringify(object)));
    t.ok(
      objects.every((object) => read.has(JSON.stringify(object))),
      "every object is read back equal",
    );
    const after = await hashesByName();
    const known = new Set(migrated.flat().map(({ metadata }) => metadata.uid));
    for (const [name, hash] of hashes) {
      const isAgain = (await migrationsOf(cluster, name)).some(({ metadata }) => !known.has(metadata.uid));
      t.equal(
        isAgain,
        after.get(name) !== hash,
        `${name} is migrated again if its storage version changed, and only then`,
      );
    }
  },
);

const CURRENT = storageVersionHashOf("apps", "v1", "Deployment");

/** Adds the entry of another API server to the StorageVersion of deployments: none that can be had here encodes them otherwise. */
async function reportOther(): Promise<() => Promise<unknown>> {
  const ref = { name: "apps.deployments" };
  const { status } = await api.get<StorageVersion>(STORAGE_VERSIONS, ref);
  const condition = {
    type: "AllEncodingVersionsEqual",
    status: "False",
    reason: "Test",
    message: "Test",
    lastTransitionTime: new Date().toISOString().replace(/\.\d+Z/, "Z"),
  };
  const decodableVersions = ["apps/v1", "apps/v1beta2"];
  const other = { apiServerID: "other", encodingVersion: "apps/v1beta2", decodableVersions };
  const report = (body: object) =>
    api.patch(STORAGE_VERSIONS, ref, { type: MERGE_PATCH, body: { status: body } }, { subresource: "status" });
  await report({
    storageVersions: [...(status?.storageVersions ?? []), other],
    commonEncodingVersion: null,
    conditions: [condition],
  });
  return () => report(status ?? {});
}

await t.test("a built-in resource whose StorageVersion shows two encodings is not migrated", async (t) => {
  const takeBack = await reportOther();
  const { seen, ended } = start([NAME]);
  await eventually(async () => /without a freeze: .*no common encoding version/.test(seen.output), "a run waits");
  await eventually(
    async () => (await hashesOf(cluster, NAME))?.current === "Unknown",
    "the trigger does not know, either",
  );
  t.same(await migrationsOf(cluster, NAME), []);
  t.notMatch(seen.output, /rewritten/);
  await takeBack();
  t.equal((await ended).code, 0);
  await untilHashes(cluster, NAME, { persisted: [CURRENT], current: CURRENT });
});

await t.test("plan and --all go by the StorageStates of built-in resources", async (t) => {
  t.equal(await controller.stop(), 0);
  const persistedStorageVersionHashes = ["before", CURRENT];
  const body = { status: { persistedStorageVersionHashes } };
  await api.patch(STORAGE_STATES, { name: NAME }, { type: MERGE_PATCH, body }, { subresource: "status" });
  await api.delete(STORAGE_STATES, { name: "secrets" });
  const plan = await cluster.ksvm(["plan", NAME, "daemonsets.apps", "secrets", "-o", "wide"]);
  t.match(plan.stdout, /deployments\.apps .* migrate /);
  t.notMatch(plan.stdout, /daemonsets\.apps .* migrate /);
  t.match(plan.stdout, /secrets .* unknown .*it has no StorageState/);
  const run = await cluster.migrate(["--all", ...BOTH, "--standalone"]);
  t.equal(run.code, 0, run.stderr);
  t.match(run.stdout, /deployments\.apps: migrated/);
  t.notMatch(run.stdout, /daemonsets\.apps: migrated|secrets: migrated/);
});
