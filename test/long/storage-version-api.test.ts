// API servers with the StorageVersion API, and one that is paused: what the trigger and a run wait for.
import t from "tap";
import { storageVersionHashOf, storedVersionsOf } from "../crd.ts";
import { hasFreezeAnnotation } from "../integration/frozen.ts";
import { Cluster, eventually } from "../integration/cluster.ts";
import { startController } from "../integration/controller.ts";
import { TestKind } from "../integration/crd-fixture.ts";
import { installSystem, untilHashes } from "../integration/migrations.ts";

const KIND = new TestKind("paused");
const NAME = "deployments.apps";
const CURRENT = storageVersionHashOf("apps", "v1", "Deployment");

const cluster = await Cluster.start(t, {
  featureGates: { StorageVersionAPI: true, APIServerIdentity: true, MutatingAdmissionPolicy: false },
  runtimeConfig: { "internal.apiserver.k8s.io/v1alpha1": true },
  apiservers: 2,
  overrides: [{ hostname: "alpha" }, { hostname: "beta" }],
});
const { controlPlane } = cluster;
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
