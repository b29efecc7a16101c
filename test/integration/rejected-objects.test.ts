import t from "tap";
import { storedVersionsOf } from "../../src/api/crd.ts";
import { assertNoTraces, assertUnfrozen } from "./assert-no-traces.ts";
import { Cluster, eventually } from "./cluster.ts";
import { TestKind } from "./crd-fixture.ts";
import { rejectUpdates } from "./reject-updates.ts";

const cluster = await Cluster.start(t);
const { api } = cluster;

/** Rejects every update of one object, and waits until that is in force. */
async function rejectUpdatesOf(kind: TestKind, name: string): Promise<() => Promise<void>> {
  const expression = `object.metadata.name != "${name}"`;
  const allow = await rejectUpdates(cluster, kind, { expression, message: "this one stays as it is" });
  const ref = { name, namespace: "default" };
  const touch = { type: "application/merge-patch+json", body: { metadata: { labels: { touched: "yes" } } } };
  await eventually(
    () =>
      api.patch(kind.resource("v1alpha1"), ref, touch, { dryRun: true }).then(
        () => false,
        () => true,
      ),
    "the rule is in force",
  );
  return allow;
}

/** The case in which the in-tree controller 1.36.3 prunes all the same, and the two old objects become unreadable. */
await t.test(
  "migrate does not prune where an object was rejected, and a second run tries only what is left",
  async (t) => {
    const kind = new TestKind("reject");
    await cluster.createStale(kind, 10);
    const allow = await rejectUpdatesOf(kind, "w3");

    const tried = await cluster.migrate([kind.name, "--dry-run"]);
    t.equal(tried.code, 3);
    t.match(tried.stderr, /default\/w3: .*this one stays as it is/, "the dry-run names it beforehand");
    t.same(await cluster.storedAs(kind), { v1alpha1: 10 });

    const run = await cluster.migrate([kind.name]);
    t.equal(run.code, 3);
    t.match(run.stdout, /incomplete after .*: 9 rewritten, 1 failed; nothing was pruned/);
    t.match(run.stderr, /default\/w3: .*this one stays as it is/);
    t.same(await cluster.storedAs(kind), { v1alpha1: 1, v1: 9 });
    t.same(storedVersionsOf(await cluster.crd(kind)), ["v1alpha1", "v1"]);
    await assertUnfrozen(t, cluster, kind);

    await allow();
    await eventually(async () => (await cluster.migrate([kind.name, "--dry-run"])).code === 0, "the rule is gone");
    const again = await cluster.migrate([kind.name]);
    t.equal(again.code, 0, again.stderr);
    t.match(again.stdout, /: 1 rewritten, 9 written by others meanwhile/);
    t.same(await cluster.storedAs(kind), { v1: 10 });
    t.same(storedVersionsOf(await cluster.crd(kind)), ["v1"]);
    await assertNoTraces(t, cluster, kind);
  },
);

await t.test("migrate goes on where an object is invalid by a schema that was tightened later", async (t) => {
  const kind = new TestKind("strict");
  await cluster.createStale(kind, 3);
  const specSchema = { type: "object", properties: { size: { type: "integer" } }, required: ["owner"] };
  await cluster.setVersions(kind, { storage: "v1", specSchema });
  const run = await cluster.migrate([kind.name]);
  // The API server lets unchanged values pass (validation ratcheting, Kubernetes 1.30 and newer).
  t.equal(run.code, 0, run.stderr);
  t.same(await cluster.storedAs(kind), { v1: 3 });
});
