import t from "tap";
import { migrateInTree, MIGRATIONS as IN_TREE, startInTree } from "../../bench/in-tree.ts";
import { storedVersionsOf } from "../crd.ts";
import { CRDS, MERGE_PATCH } from "../api-client.ts";
import { assertUnfrozen } from "./assert-no-traces.ts";
import { Cluster, eventually } from "./cluster.ts";
import { startController } from "./controller.ts";
import { GROUP, TestKind } from "./crd-fixture.ts";
import { createMigration, installSystem, untilState } from "./migrations.ts";

// Kubernetes' own migrator at work on the same resource: ksvm waits for it.

const cluster = await Cluster.start(t);
const { api } = cluster;
await installSystem(cluster);

/**
 * A migration of Kubernetes' own migrator that runs. The real controller begins it half a minute later and ends it when
 * it likes, so that the test says in its place that it runs; everything else is real.
 */
async function startInTreeMigration(kind: TestKind): Promise<{ end(): Promise<void> }> {
  const ref = { name: kind.plural };
  await api.create(IN_TREE, {
    apiVersion: "storagemigration.k8s.io/v1",
    kind: "StorageVersionMigration",
    metadata: ref,
    spec: { resource: { group: GROUP, resource: kind.plural } },
  });
  const say = async (type: string): Promise<void> => {
    const condition = {
      type,
      status: "True",
      reason: "Test",
      message: "",
      lastTransitionTime: new Date().toISOString(),
    };
    const body = { status: { conditions: [{ ...condition }], resourceVersion: "1" } };
    await api.patch(IN_TREE, ref, { type: MERGE_PATCH, body }, { subresource: "status" });
  };
  await say("Running");
  return { end: () => api.delete(IN_TREE, ref) };
}

// Before a controller has registered a webhook, so that the policy guards the run.
await t.test(
  "ksvm migrate waits without a freeze while Kubernetes' own migrator runs on the same resource",
  async (t) => {
    const kind = new TestKind("command");
    await cluster.createStale(kind, 3);
    const before = await startInTreeMigration(kind);
    let output = "";
    const ended = cluster.migrate([kind.name, "--standalone"], {
      onStdout: (text) => {
        output += text;
      },
    });
    const isTold = new RegExp(`waiting without a freeze: the StorageVersionMigration "${kind.plural}" of Kubernetes`);
    await eventually(async () => isTold.test(output), "it says what it waits for");
    await assertUnfrozen(t, cluster, kind);
    t.same(await cluster.storedAs(kind), { v1alpha1: 3 });
    // It prunes also where it fails.
    const body = { status: { storedVersions: ["v1"] } };
    await api.patch(CRDS, kind, { type: MERGE_PATCH, body }, { subresource: "status" });
    await before.end();
    const { code, stderr } = await ended;
    t.equal(code, 0, stderr);
    t.same(await cluster.storedAs(kind), { v1: 3 });
    t.same(storedVersionsOf(await cluster.crd(kind)), ["v1"]);
  },
);

await t.test(
  "a migration waits while Kubernetes' own migrator runs on the same resource, and on no other",
  async (t) => {
    await startController(t, cluster);
    const [kind, other] = [new TestKind("both"), new TestKind("other")];
    await cluster.createStale(kind, 3);
    await cluster.createStale(other, 3);
    const inTree = await startInTreeMigration(kind);
    const created = await createMigration(cluster, kind);
    const waiting = await untilState(cluster, created, ["Waiting"]);
    t.match(waiting.status?.conditions?.[0], { reason: "InTreeMigration", message: new RegExp(kind.plural) });
    await untilState(cluster, await createMigration(cluster, other), ["Succeeded"]);
    await assertUnfrozen(t, cluster, kind);
    t.same(await cluster.storedAs(kind), { v1alpha1: 3 });
    await inTree.end();
    await untilState(cluster, created, ["Succeeded"]);
    t.same(storedVersionsOf(await cluster.crd(kind)), ["v1"]);
  },
);

await t.test("a migration waits for the real in-tree controller, and finds its work done", async (t) => {
  await startController(t, cluster);
  const kind = new TestKind("real");
  await cluster.createStale(kind, 30);
  const inTree = migrateInTree(cluster, kind, new AbortController().signal);
  const created = await createMigration(cluster, kind);
  await startInTree(cluster);
  t.equal((await inTree).outcome, "Succeeded");
  await untilState(cluster, created, ["Succeeded"]);
  t.same(await cluster.storedAs(kind), { v1: 30 });
  t.same(storedVersionsOf(await cluster.crd(kind)), ["v1"]);
});
