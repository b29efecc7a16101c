import t from "tap";
import { storedVersionsOf } from "../../src/api/crd.ts";
import { assertNoTraces } from "../integration/assert-no-traces.ts";
import { Cluster, eventually } from "../integration/cluster.ts";
import { GROUP, TestKind } from "../integration/crd-fixture.ts";
import { balanceRequests } from "../integration/http-balancer.ts";
import { SLOW_FLAGS, SLOW_RUN_OBJECTS } from "../integration/slow-run.ts";
import { KineDatastore } from "./kine-datastore.ts";

// As two servers of k3s with one database: each kine looks once a second for what was written through the other one.
const datastore = await KineDatastore.start(t, 2);
const cluster = await Cluster.start(t, {
  apiservers: 2,
  overrides: datastore.urls.map((etcdUrl, index) => ({ etcdUrl, hostname: `server-${index}` })),
});
const { controlPlane } = cluster;
const [first, second] = controlPlane.apiservers.map(({ url }) => url);
const BOTH = ["--apiserver-endpoints", `${first},${second}`];

interface Listed {
  readonly metadata?: { readonly resourceVersion: string };
}

/** Writes an object through one API server. @returns whether a list through the other one is from before that */
async function isListOlder(kind: TestKind): Promise<boolean> {
  const path = `/apis/${GROUP}/v1/namespaces/default/${kind.plural}`;
  const body = { metadata: { labels: { at: String(performance.now()) } } };
  const written = (await controlPlane.request(`${path}/w0`, { method: "PATCH", body })).body as Listed;
  const listed = (await controlPlane.request(`${path}?limit=1`, { apiserver: 1 })).body as Listed;
  return Number(listed.metadata?.resourceVersion) < Number(written.metadata?.resourceVersion);
}

await t.test("a run goes on where a list through one kine is older than its writes through another one", async (t) => {
  const kind = new TestKind("kine");
  await cluster.createStale(kind, SLOW_RUN_OBJECTS);
  t.same(datastore.storedAs(kind), { v1alpha1: SLOW_RUN_OBJECTS });
  await eventually(
    () => isListOlder(kind),
    "a list through one API server is older than a write through the other one",
  );
  // By these a run looks whether what it wrote is still there. A load balancer may send any request to any API server.
  const isLook = (path: string): boolean => path.includes(kind.plural) && path.includes("fieldSelector=");
  let looks = 0;
  const kubeconfig = await balanceRequests(t, controlPlane, (path) => (isLook(path) ? Math.sign(++looks) : 0));
  const { code, stdout, stderr } = await cluster.migrate([
    kind.name,
    ...SLOW_FLAGS,
    ...BOTH,
    "--kubeconfig",
    kubeconfig,
  ]);
  t.equal(code, 0, stderr);
  t.ok(looks > 0);
  t.notMatch(stdout, /restored from a backup/);
  t.same(datastore.storedAs(kind), { v1: SLOW_RUN_OBJECTS });
  t.same(storedVersionsOf(await cluster.crd(kind)), ["v1"]);
  await assertNoTraces(t, cluster, kind);
});
