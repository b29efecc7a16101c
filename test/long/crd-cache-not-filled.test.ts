import t from "tap";
import { storedVersionsOf } from "../crd.ts";
import { encryptionConfig } from "../control-plane/encryption.ts";
import { assertUnfrozen } from "../integration/assert-no-traces.ts";
import { Cluster, eventually } from "../integration/cluster.ts";
import { TestKind } from "../integration/crd-fixture.ts";

const CRDS = "customresourcedefinitions.apiextensions.k8s.io";
const CRDS_PATH = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";

// The first API server cannot read a CRD that another one has written with a key which it does not have yet.
const cluster = await Cluster.start(t, {
  overrides: [{ hostname: "control-plane-1", encryptionConfig: encryptionConfig(["old", "identity"], [CRDS]) }],
});
const { controlPlane } = cluster;

await t.test(
  "a run does not go on where an API server cannot fill its watch cache of CRDs, and etcd answers in its place",
  async (t) => {
    const kind = new TestKind("unfilled");
    const versions = ["v1", "v2alpha1", "v2"];
    // No discovery shows the hash of a storage version that is not served.
    const unserved = ["v2alpha1", "v2"];
    await cluster.createCrd(kind, { versions, unserved, storage: "v2alpha1" });
    await cluster.createObjects(kind.resource("v1"), kind.objects(5, "v1"));
    const both = encryptionConfig(["new", "old", "identity"], [CRDS]);
    await controlPlane.addApiserver({ hostname: "control-plane-2", encryptionConfig: both });
    const other = new TestKind("other").manifest({ storage: "v1" });
    await controlPlane.request(CRDS_PATH, { method: "POST", apiserver: 1, body: other });
    const byName = `${CRDS_PATH}?fieldSelector=metadata.name=${kind.name}&resourceVersion=0&resourceVersionMatch=NotOlderThan`;
    const isUnfilled = async (): Promise<boolean> =>
      (await controlPlane.request(byName).catch(() => ({ status: 429 }))).status === 429;
    await eventually(isUnfilled, "the watch cache is not filled any more", 60_000);
    await cluster.setVersions(kind, { versions, unserved, storage: "v2" });

    const { resourceVersion } = (await cluster.crd(kind)).metadata;
    const got = await controlPlane.request(`${CRDS_PATH}/${kind.name}?resourceVersion=${resourceVersion}`);
    t.equal(got.status, 200, "negative control: etcd answers a GET, although the API server follows an older CRD");
    await cluster.createObjects(kind.resource("v1"), [kind.object("late", "v1")]);
    t.same(await cluster.storedAs(kind), { v2alpha1: 6 }, "negative control: it stores objects in the old version");

    const endpoints = controlPlane.apiservers.map(({ url }) => url).join();
    const run = await cluster.migrate([kind.name, "--apiserver-endpoints", endpoints]);
    t.equal(run.code, 1, run.stdout);
    t.match(run.stderr, /did not follow within 10 s: its watch cache of CRDs is not filled/);
    t.same(storedVersionsOf(await cluster.crd(kind)), ["v2alpha1", "v2"]);
    await assertUnfrozen(t, cluster, kind);
  },
);
