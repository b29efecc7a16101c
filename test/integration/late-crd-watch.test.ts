import t from "tap";
import { storageVersionHashOf, storedVersionsOf } from "../../src/api/crd.ts";
import { Cluster, eventually } from "./cluster.ts";
import { GROUP, TestKind } from "./crd-fixture.ts";
import { holdableEtcd } from "./held-etcd.ts";

const SECOND = 1;
const CRD_KEYS = "/registry/apiextensions.k8s.io/customresourcedefinitions/";

const cluster = await Cluster.start(t, { overrides: [{ hostname: "control-plane-1" }] });
const { controlPlane } = cluster;
const etcd = await holdableEtcd(t, controlPlane.etcd.url);
await controlPlane.addApiserver({ hostname: "control-plane-2", etcdUrl: etcd.url });
const ENDPOINTS = controlPlane.apiservers.map(({ url }) => url).join(",");

await t.test(
  "an API server that has yet to see the storage version go there and back is waited for, and named",
  async (t) => {
    const kind = new TestKind("thereandback");
    await cluster.createCrd(kind, { storage: "v1alpha1" });
    await cluster.createObjects(kind.resource("v1alpha1"), kind.objects(5, "v1alpha1"));
    await cluster.setVersions(kind, { storage: "v1" });
    const showsV1 = async (): Promise<boolean> => {
      const { body } = await controlPlane.request(`/apis/${GROUP}/v1`, { apiserver: SECOND });
      const { resources } = body as { resources: { name: string; storageVersionHash?: string }[] };
      const hash = resources.find(({ name }) => name === kind.plural)?.storageVersionHash;
      return hash === storageVersionHashOf(GROUP, "v1", kind.kind);
    };
    await eventually(showsV1, "the second API server shows v1");
    etcd.holdWatches(CRD_KEYS);
    t.teardown(() => etcd.letWatchesGo());
    await cluster.setVersions(kind, { storage: "v1alpha1" });
    await cluster.setVersions(kind, { storage: "v1" });
    let output = "";
    const flags = ["--apiserver-endpoints", ENDPOINTS];
    const ended = cluster.migrate([kind.name, ...flags], { onStdout: (text) => (output += text) });
    t.ok(await showsV1(), "its discovery knows no better");
    await eventually(async () => output.includes("its watch cache shows generation"), "the run waits", 60_000);
    t.same(await cluster.storedAs(kind), { v1alpha1: 5 }, "nothing is rewritten");
    t.same(storedVersionsOf(await cluster.crd(kind)), ["v1alpha1", "v1"], "nothing is pruned");
    etcd.letWatchesGo();
    const run = await ended;
    t.equal(run.code, 0, run.stdout + run.stderr);
    t.same(await cluster.storedAs(kind), { v1: 5 });
    t.same(storedVersionsOf(await cluster.crd(kind)), ["v1"]);
  },
);
