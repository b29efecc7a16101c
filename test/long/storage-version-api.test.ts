// API servers with the StorageVersion API, and one that is paused: what the trigger and a run wait for.
import t from "tap";
import { storageVersionHashOf, storedVersionsOf } from "../../src/api/crd.ts";
import { hasFreezeAnnotation } from "../integration/frozen.ts";
import type { StorageVersion } from "../../src/apiservers/agree.ts";
import { MERGE_PATCH, STORAGE_VERSIONS } from "../../src/old/kube/resources.ts";
import { Cluster, eventually } from "../integration/cluster.ts";
import { startController } from "../integration/controller.ts";
import { TestKind } from "../integration/crd-fixture.ts";
import { hashesOf, installSystem, untilHashes } from "../integration/migrations.ts";

const KIND = new TestKind("paused");
const NAME = "deployments.apps";
const CURRENT = storageVersionHashOf("apps", "v1", "Deployment");

const cluster = await Cluster.start(t, {
  featureGates: { StorageVersionAPI: true, APIServerIdentity: true, MutatingAdmissionPolicy: false },
  runtimeConfig: { "internal.apiserver.k8s.io/v1alpha1": true },
  apiservers: 2,
  overrides: [{ hostname: "alpha" }, { hostname: "beta" }],
});
const { api, controlPlane } = cluster;
await installSystem(cluster);
const endpoints = controlPlane.apiservers.map(({ url }) => url).join(",");
const flags = [
  "--trigger=on",
  "--trigger-interval=2s",
  `--trigger-only-resources=${[NAME, KIND.name].join()}`,
  `--apiserver-endpoints=${endpoints}`,
];
const controller = await startController(t, cluster, { flags });
await untilHashes(cluster, NAME, { persisted: [CURRENT], current: CURRENT });

await t.test(
  "a CRD is migrated only when every API server can be asked, and the one that does not answer is named",
  async (t) => {
    const kind = KIND;
    await cluster.createStale(kind, 3);
    const isClean = async () => {
      const crd = await cluster.crd(kind);
      return storedVersionsOf(crd).join() === "v1" && !hasFreezeAnnotation(crd);
    };
    await eventually(isClean, "the first change is migrated");
    const second = controlPlane.apiservers[1];
    second?.pause();
    await cluster.setVersions(kind, { storage: "v1alpha1" });
    const isNamed = async () =>
      controller
        .log()
        .split("\n")
        .some((line) => line.includes(kind.name) && line.includes(second?.url ?? "?"));
    await eventually(isNamed, "the trigger says what it waits for");
    t.same(storedVersionsOf(await cluster.crd(kind)), ["v1", "v1alpha1"]);
    t.same(await cluster.storedAs(kind), { v1: 3 });
    second?.resume();
    await eventually(async () => storedVersionsOf(await cluster.crd(kind)).join() === "v1alpha1", "it is migrated");
    t.same(await cluster.storedAs(kind), { v1alpha1: 3 });
  },
);

await t.test("the entry of an API server without a Lease in a StorageVersion is named and waited for", async (t) => {
  const ref = { name: "apps.deployments" };
  const { status } = await api.get<StorageVersion>(STORAGE_VERSIONS, ref);
  const report = (body: object) =>
    api.patch(STORAGE_VERSIONS, ref, { type: MERGE_PATCH, body: { status: body } }, { subresource: "status" });
  const other = { apiServerID: "other", encodingVersion: "apps/v1", decodableVersions: ["apps/v1"] };
  await report({ storageVersions: [...(status?.storageVersions ?? []), other] });
  await eventually(
    async () => (await hashesOf(cluster, NAME))?.current === "Unknown",
    "although all entries are equal",
  );
  t.match(controller.log(), /other, which has no live identity Lease/);
  await report(status ?? {});
  await untilHashes(cluster, NAME, { persisted: [CURRENT], current: CURRENT });
});

await t.test("a StorageVersion that changes during the run of a built-in resource makes it begin again", async (t) => {
  const template = { metadata: { labels: { app: "a" } }, spec: { containers: [{ name: "c", image: "i" }] } };
  const objects = Array.from({ length: 30 }, (_, index) => ({
    apiVersion: "apps/v1",
    kind: "Deployment",
    metadata: { name: `deployment${index}`, namespace: "default" },
    spec: { selector: { matchLabels: { app: "a" } }, template },
  }));
  await cluster.createObjects({ group: "apps", version: "v1", resource: "deployments" }, objects);
  let output = "";
  const args = ["--apiserver-endpoints", endpoints, "--standalone", "--max-qps", "8"];
  const ended = cluster.migrate([NAME, ...args], { onStdout: (text) => (output += text) });
  await eventually(async () => /\d\/30/.test(output), "the run is under way");
  const body = { metadata: { labels: { touched: "yes" } } };
  await api.patch(STORAGE_VERSIONS, { name: "apps.deployments" }, { type: MERGE_PATCH, body });
  const { code, stderr, stdout } = await ended;
  t.equal(code, 0, stderr);
  t.match(stdout, /starting again: .*StorageVersion/);
});
