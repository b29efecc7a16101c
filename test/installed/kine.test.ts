import t from "tap";
import { storedVersionsOf } from "../crd.ts";
import { assertNoTraces } from "../integration/assert-no-traces.ts";
import { Cluster } from "../integration/cluster.ts";
import { TestKind } from "../integration/crd-fixture.ts";
import { balanceRequests } from "../integration/http-balancer.ts";
import { SLOW_RUN_OBJECTS } from "../integration/slow-run.ts";
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

await t.test("a run goes on where a list through one kine is older than its writes through another one", async (t) => {
  const kind = new TestKind("kine");
  await cluster.createStale(kind, SLOW_RUN_OBJECTS);
  t.same(datastore.storedAs(kind), { v1alpha1: SLOW_RUN_OBJECTS });
  let older = 0;
  // By a list of one name a run looks whether what it wrote is still there. A load balancer may send any request to any API server.
  const instead = async (method: string, path: string) => {
    if (method !== "GET" || !path.includes(kind.plural) || !path.includes("fieldSelector=")) {
      return undefined;
    }
    const written = datastore.lastWrite(kind);
    const { status, body } = await controlPlane.request(path, { apiserver: 1 });
    const { resourceVersion } = (body as { readonly metadata: { readonly resourceVersion?: string } }).metadata;
    older += Number(resourceVersion) < written ? 1 : 0;
    return { status, body: JSON.stringify(body) };
  };
  const kubeconfig = await balanceRequests(t, controlPlane, () => 0, { instead });
  const flags = ["--max-qps", "12", ...BOTH, "--kubeconfig", kubeconfig];
  const { code, stdout, stderr } = await cluster.migrate([kind.name, ...flags]);
  t.equal(code, 0, stderr);
  t.ok(older > 0, "negative control: a list was older than a write");
  t.notMatch(stdout, /restored from a backup/);
  t.same(datastore.storedAs(kind), { v1: SLOW_RUN_OBJECTS });
  t.same(storedVersionsOf(await cluster.crd(kind)), ["v1"]);
  await assertNoTraces(t, cluster, kind);
});
