import t, { type Test } from "tap";
import { storedVersionsOf } from "../../src/api/crd.ts";
import { assertNoTraces, assertUnfrozen } from "./assert-no-traces.ts";
import { Cluster, eventually } from "./cluster.ts";
import { TestKind } from "./crd-fixture.ts";
import { installSystem } from "./migrations.ts";

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

/** Neither frozen, nor rewritten, nor pruned. */
async function assertUntouched(t: Test, kind: TestKind): Promise<void> {
  t.same(await cluster.storedAs(kind), { v1alpha1: 5 }, "nothing is rewritten");
  t.same(storedVersionsOf(await cluster.crd(kind)), ["v1alpha1", "v1"], "nothing is pruned");
  await assertUnfrozen(t, cluster, kind);
}

await t.test("a hung API server is waited for without a freeze, and named; then the run goes on", async (t) => {
  const kind = await changeWhileHung("hung");
  let output = "";
  const flags = [...EACH];
  const ended = cluster.migrate([kind.name, ...flags], { onStdout: (text) => (output += text) });
  await eventually(async () => output.includes(`waiting for ${second.url}`), "the run waits, and names it");
  t.same(await cluster.storedAs(kind), { v1alpha1: 5 }, "nothing is rewritten");
  second.resume();
  const run = await ended;
  t.equal(run.code, 0, run.stderr);
  t.same(await cluster.storedAs(kind), { v1: 5 });
  t.same(storedVersionsOf(await cluster.crd(kind)), ["v1"]);
  await assertNoTraces(t, cluster, kind);
});

await t.test("one that does not come back ends the run with its name", async (t) => {
  const kind = await changeWhileHung("gone");
  t.teardown(() => second.resume());
  const run = await cluster.migrate([kind.name, ...EACH]);
  t.equal(run.code, 1);
  t.match(run.stderr, second.url);
  await assertUntouched(t, kind);
});
