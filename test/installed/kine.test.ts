import t from "tap";
import { storedVersionsOf } from "../crd.ts";
import { assertNoTraces } from "../integration/assert-no-traces.ts";
import { Cluster } from "../integration/cluster.ts";
import { TestKind } from "../integration/crd-fixture.ts";
import { SLOW_RUN_OBJECTS } from "../integration/slow-run.ts";
import { KineDatastore } from "./kine-datastore.ts";

// As two servers of k3s with one database: each kine looks once a second for what was written through the other one.
const datastore = await KineDatastore.start(t, 2);
const cluster = await Cluster.start(t, {
  apiservers: 2,
  overrides: datastore.urls.map((etcdUrl, index) => ({ etcdUrl, hostname: `server-${index}` })),
});
const endpoints = cluster.controlPlane.apiservers.map(({ url }) => url).join();

await t.test("a CRD is migrated where each of two API servers reads through a kine of its own", async (t) => {
  const kind = new TestKind("kine");
  await cluster.createStale(kind, SLOW_RUN_OBJECTS);
  t.same(datastore.storedAs(kind), { v1alpha1: SLOW_RUN_OBJECTS });
  const { code, stderr } = await cluster.migrate([kind.name, "--apiserver-endpoints", endpoints]);
  t.equal(code, 0, stderr);
  t.same(datastore.storedAs(kind), { v1: SLOW_RUN_OBJECTS });
  t.same(storedVersionsOf(await cluster.crd(kind)), ["v1"]);
  await assertNoTraces(t, cluster, kind);
});
