import t from "tap";
import { storedVersionsOf } from "../../src/api/crd.ts";
import { LEASES } from "../../src/kube/resources.ts";
import { assertUnfrozen } from "./assert-no-traces.ts";
import { Cluster } from "./cluster.ts";
import { TestKind } from "./crd-fixture.ts";

const cluster = await Cluster.start(t, {
  featureGates: { APIServerIdentity: false, UnknownVersionInteroperabilityProxy: false },
});

await t.test("an API server without an identity Lease has to be named", async (t) => {
  const leases = await cluster.api.list<{ readonly metadata: { readonly name: string } }>(LEASES, {
    labelSelector: "apiserver.kubernetes.io/identity=kube-apiserver",
  });
  t.same(leases, [], "negative control");
  const kind = new TestKind("leaseless");
  await cluster.createStale(kind, 5);
  const refused = await cluster.migrate([kind.name]);
  t.equal(refused.code, 1);
  t.match(refused.stderr, /no identity Lease in kube-system lives.*--apiserver-endpoints.*\[ApiServerMissing\]/);
  t.same(await cluster.storedAs(kind), { v1alpha1: 5 });
  await assertUnfrozen(t, cluster, kind);
  const named = await cluster.migrate([
    kind.name,
    "--apiserver-endpoints",
    cluster.controlPlane.apiservers[0]?.url ?? "",
  ]);
  t.equal(named.code, 0, named.stderr);
  t.same(await cluster.storedAs(kind), { v1: 5 });
  t.same(storedVersionsOf(await cluster.crd(kind)), ["v1"]);
});
