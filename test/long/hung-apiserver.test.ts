import t from "tap";
import { storedVersionsOf } from "../crd.ts";
import { assertNoTraces, assertUnfrozen } from "../integration/assert-no-traces.ts";
import { Cluster, eventually } from "../integration/cluster.ts";
import { TestKind } from "../integration/crd-fixture.ts";
import { installSystem } from "../integration/migrations.ts";

// Two API servers of which the second one hangs (SIGSTOP).

const overrides = [{ hostname: "alpha" }, { hostname: "beta" }];
const cluster = await Cluster.start(t, { apiservers: 2, overrides });
const { controlPlane } = cluster;
const [first, second] = controlPlane.apiservers;
if (first === undefined || second === undefined) throw new Error("two API servers were asked for");
const BOTH = [first.url, second.url];
t.teardown(() => second.resume());
await installSystem(cluster);

const EACH = ["--apiserver-endpoints", BOTH.join()];

/** The storage version of a CRD changes while the second API server hangs. */
async function changeWhileHung(word: string): Promise<TestKind> {
  const kind = new TestKind(word);
  await cluster.createCrd(kind, { storage: "v1alpha1" });
  await cluster.createObjects(kind.resource("v1alpha1"), kind.objects(5, "v1alpha1"));
  second?.pause();
  await cluster.setVersions(kind, { storage: "v1" });
  return kind;
}

await t.test("a hung API server is waited for without a freeze, and named; then the run goes on", async (t) => {
  const kind = await changeWhileHung("hung");
  let output = "";
  const ended = cluster.migrate([kind.name, ...EACH], { onStdout: (text) => (output += text) });
  await eventually(async () => output.includes(second.url), "the run waits, and names it");
  t.same(await cluster.storedAs(kind), { v1alpha1: 5 }, "nothing is rewritten");
  await assertUnfrozen(t, cluster, kind);
  second.resume();
  const run = await ended;
  t.equal(run.code, 0, run.stderr);
  t.same(await cluster.storedAs(kind), { v1: 5 });
  t.same(storedVersionsOf(await cluster.crd(kind)), ["v1"]);
  await assertNoTraces(t, cluster, kind);
});
