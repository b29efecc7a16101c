import t from "tap";
import { storedVersionsOf } from "../../src/api/crd.ts";
import { MIGRATING_ANNOTATION } from "../../src/api/names.ts";
import { freezeOwnerOf, hasFreezeAnnotation } from "../../src/api/owner.ts";
import { CRDS, MERGE_PATCH } from "../../src/kube/resources.ts";
import { assertUnfrozen } from "./assert-no-traces.ts";
import { Cluster, eventually } from "./cluster.ts";
import {
  createMigration,
  deleteMigration,
  eventReasons,
  installSystem,
  SLOW,
  spawnReplica,
  startController,
  untilState,
} from "./controller-fixture.ts";
import { TestKind } from "./crd-fixture.ts";
import { untilRewriting } from "./slow-run.ts";
import { installWebhook } from "./webhook-guard.ts";

const cluster = await Cluster.start(t);
const { api } = cluster;
await installSystem(cluster);

function isFrozen(kind: TestKind): () => Promise<boolean> {
  return async () => hasFreezeAnnotation(await cluster.crd(kind));
}

function isThawed(kind: TestKind): () => Promise<boolean> {
  return async () => !(await isFrozen(kind)());
}

const webhook = await installWebhook(cluster);

await t.test("deleting a migration while it settles leaves no annotation", async (t) => {
  startController(t, cluster, { settleMs: 120_000 });
  const kind = new TestKind("settling");
  await cluster.createStale(kind, 3);
  const created = await createMigration(cluster, kind);
  await eventually(async () => (await eventReasons(cluster, created)).includes("Converged"), "it settles");
  t.ok(await isFrozen(kind)());
  await deleteMigration(cluster, created);
  await eventually(isThawed(kind), "the freeze is lifted");
  await assertUnfrozen(t, cluster, kind);
  t.same(await cluster.storedAs(kind), { v1alpha1: 3 });
});

await t.test(
  "deleting a migration while it rewrites stops the writes within 5 s and leaves no annotation",
  async (t) => {
    startController(t, cluster, SLOW);
    const kind = new TestKind("writing");
    await cluster.createStale(kind, 300);
    const created = await createMigration(cluster, kind);
    await untilRewriting(cluster, kind);
    await deleteMigration(cluster, created);
    const deletedAt = performance.now();
    await eventually(isThawed(kind), "the freeze is lifted");
    t.ok(performance.now() - deletedAt < 60_000, "soon, on a slow machine too");
    const left = await cluster.storedAs(kind);
    t.ok((left["v1alpha1"] ?? 0) > 0, "there was work left");
    await new Promise((resolve) => setTimeout(resolve, 2_000));
    t.same(await cluster.storedAs(kind), left, "nothing is written any more");
    t.same(storedVersionsOf(await cluster.crd(kind)), ["v1alpha1", "v1"]);
    await assertUnfrozen(t, cluster, kind);
    // The next one takes up the work where this one left it.
    await untilState(cluster, await createMigration(cluster, kind), ["Succeeded"], 60_000);
    t.same(await cluster.storedAs(kind), { v1: 300 });
  },
);

await t.test("a migration deleted while no replica leads leaves an orphan, which the next leader sweeps", async (t) => {
  const kind = new TestKind("orphan");
  await cluster.createStale(kind, 100);
  const created = await createMigration(cluster, kind);
  const replica = spawnReplica(t, cluster, "dies", SLOW);
  await untilRewriting(cluster, kind);
  await replica.program.kill();
  await deleteMigration(cluster, created);
  t.match(freezeOwnerOf(await cluster.crd(kind))?.identity, /^dies\//);

  const foreign = new TestKind("foreign");
  await cluster.createStale(foreign, 1);
  const body = { metadata: { annotations: { [MIGRATING_ANNOTATION]: "by-hand" } } };
  await api.patch(CRDS, foreign, { type: MERGE_PATCH, body });
  startController(t, cluster);
  await eventually(isThawed(kind), "the orphan is swept", 40_000);
  await assertUnfrozen(t, cluster, kind);
  t.same(storedVersionsOf(await cluster.crd(kind)), ["v1alpha1", "v1"]);
  t.ok(await isFrozen(foreign)(), "a freeze of another owner stays");
  const waiting = await untilState(cluster, await createMigration(cluster, foreign), ["Waiting"]);
  t.match(waiting.status?.conditions?.[0], { type: "Waiting", reason: "ForeignFreeze", message: /kubectl annotate/ });
});

await t.test("deleting a migration while its freeze is being proven leaves no annotation", async (t) => {
  await webhook.uninstall();
  startController(t, cluster);
  const kind = new TestKind("proving");
  await cluster.createStale(kind, 3);
  const created = await createMigration(cluster, kind);
  await eventually(isFrozen(kind), "it is frozen");
  await deleteMigration(cluster, created);
  await eventually(isThawed(kind), "the freeze is lifted");
  await assertUnfrozen(t, cluster, kind);
  t.same(await cluster.storedAs(kind), { v1alpha1: 3 });
});
