import { writeFileSync } from "node:fs";
import { join } from "node:path";
import t, { type Test } from "tap";
import { isOfKstatus } from "../../src/api/kstatus.ts";
import type { StorageVersionMigration } from "../../src/api/migration.ts";
import { MIGRATING_ANNOTATION } from "../../src/api/names.ts";
import { CRDS, MERGE_PATCH, MIGRATIONS } from "../../src/kube/resources.ts";
import { healthScript } from "../kstatus/health-script.ts";
import { ensureJudge } from "../kstatus/judge.ts";
import { Cluster, eventually } from "./cluster.ts";
import {
  createMigration,
  deleteMigration,
  installSystem,
  patchStatus,
  readMigration,
  SLOW,
  startController,
  untilState,
} from "./controller-fixture.ts";
import { TestKind } from "./crd-fixture.ts";
import { rejectUpdatesOf } from "./reject-updates.ts";
import { installWebhook } from "./webhook-guard.ts";

const judge = await ensureJudge();
const cluster = await Cluster.start(t);
const { api } = cluster;
await installSystem(cluster);
const webhook = await installWebhook(cluster);
t.teardown(() => webhook.uninstall());
const script = join(t.testdir(), "health.lua");
writeFileSync(script, healthScript());

/** What kstatus and Argo CD say of a migration. */
async function saidOf(migration: StorageVersionMigration): Promise<{ kstatus: string; argo: string }> {
  const [kstatus, argo] = [await judge.kstatus(migration), await judge.argo(migration, script)];
  return { kstatus: kstatus.status, argo: argo.status };
}

/** A migration as an earlier release left it. */
function withoutKstatus(migration: StorageVersionMigration): StorageVersionMigration {
  const { observedGeneration: _, conditions = [], ...status } = migration.status ?? {};
  return { ...migration, status: { ...status, conditions: conditions.filter(({ type }) => !isOfKstatus(type)) } };
}

function suspend(migration: StorageVersionMigration, isSuspended: boolean): Promise<unknown> {
  const body = { spec: { suspend: isSuspended } };
  return api.patch(MIGRATIONS, migration.metadata, { type: MERGE_PATCH, body });
}

async function untilSaid(migration: StorageVersionMigration, kstatus: string, argo: string): Promise<void> {
  const isSaid = async (): Promise<boolean> => {
    const said = await saidOf(await readMigration(cluster, migration));
    return said.kstatus === kstatus && said.argo === argo;
  };
  await eventually(isSaid, `${migration.metadata.name} is ${kstatus}`, 20_000);
}

/** Also that kstatus would take it for done without what is there for it. */
async function assertInProgress(t: Test, migration: StorageVersionMigration, argo = "Progressing"): Promise<void> {
  t.same(await saidOf(migration), { kstatus: "InProgress", argo });
  t.equal((await judge.kstatus(withoutKstatus(migration))).status, "Current", "negative control: without the fields");
}

await t.test("kstatus: a migration that no replica has looked at is not done", async (t) => {
  const created = await createMigration(cluster, new TestKind("fresh"));
  const read = await readMigration(cluster, created);
  for (const one of [created, read]) {
    t.same(one.status, { observedGeneration: -1 });
    await assertInProgress(t, one);
  }
  const { status: _, ...bare } = read;
  t.equal((await judge.kstatus(bare)).status, "Current", "negative control: as it is in etcd");
  const initializer = { ...bare, metadata: { name: "empty-status" }, status: {} };
  const other = await api.create<StorageVersionMigration>(MIGRATIONS, initializer);
  await assertInProgress(t, other);
  await deleteMigration(cluster, created);
  await deleteMigration(cluster, other);
});

await t.test("kstatus: a migration is in progress in every state until it has ended", async (t) => {
  const [slow, next] = [new TestKind("slow"), new TestKind("next")];
  await cluster.createStale(slow, 100);
  await cluster.createStale(next, 1);
  startController(t, cluster, SLOW);
  const first = await createMigration(cluster, slow);
  await untilState(cluster, first, ["Running"]);
  const second = await createMigration(cluster, next);
  await eventually(
    async () => (await readMigration(cluster, second)).status?.conditions !== undefined,
    "the other one is in the queue",
  );
  await assertInProgress(t, await readMigration(cluster, second));
  const seen = new Set<string>();
  await eventually(async () => {
    const now = await readMigration(cluster, first);
    seen.add((await judge.kstatus(now)).status);
    return now.status?.progress?.startsWith("0/") === false;
  }, "it rewrites");
  await assertInProgress(t, await readMigration(cluster, first));
  t.same([...seen], ["InProgress"]);
  await suspend(first, true);
  await assertInProgress(t, await untilState(cluster, first, ["Suspended"]), "Suspended");
  await suspend(first, false);
  const ended = await untilState(cluster, first, ["Succeeded"], 60_000);
  t.same(await saidOf(ended), { kstatus: "Current", argo: "Healthy" });
  t.equal(ended.status?.observedGeneration, ended.metadata.generation);
  t.ok((ended.metadata.generation ?? 0) > 3, "continue tokens are part of the spec");
  t.same(
    ended.status?.conditions?.filter(({ type }) => isOfKstatus(type)),
    [],
  );
});

await t.test("kstatus: one that waits for others is in progress", async (t) => {
  const foreign = new TestKind("foreign");
  await cluster.createStale(foreign, 1);
  const body = { metadata: { annotations: { [MIGRATING_ANNOTATION]: "by-hand" } } };
  await api.patch(CRDS, foreign, { type: MERGE_PATCH, body });
  startController(t, cluster);
  const created = await createMigration(cluster, foreign);
  const waiting = await untilState(cluster, created, ["Waiting"]);
  await assertInProgress(t, waiting);
  t.match((await judge.kstatus(waiting)).message, /kubectl annotate/, "Helm shows what it waits for");
  await deleteMigration(cluster, created);
});

await t.test(
  "kstatus: one that has failed is Failed, also where another client or an earlier release wrote it",
  async (t) => {
    const kind = new TestKind("refused");
    await cluster.createStale(kind, 2);
    t.teardown(await rejectUpdatesOf(cluster, kind, kind.objects(1, "v1")[0]?.metadata.name ?? ""));
    const controller = startController(t, cluster);
    const failed = await untilState(cluster, await createMigration(cluster, kind), ["Failed"]);
    t.same(await saidOf(failed), { kstatus: "Failed", argo: "Degraded" });
    t.match(await judge.kstatus(failed), { message: /1 objects could not be migrated/ });
    t.match(failed.status?.conditions?.slice(-2), [
      { type: "Failed", reason: "ObjectsNotMigrated" },
      { type: "Stalled", reason: "ObjectsNotMigrated" },
    ]);
    const earlier = withoutKstatus(failed);
    t.equal((await judge.kstatus(earlier)).status, "Current", "negative control: an earlier release");
    await controller.stop();
    await patchStatus(cluster, failed, { observedGeneration: null, conditions: earlier.status?.conditions });
    t.same(await saidOf(await readMigration(cluster, failed)), { kstatus: "Current", argo: "Degraded" });
    startController(t, cluster);
    await untilSaid(failed, "Failed", "Degraded");
    const again = await readMigration(cluster, failed);
    t.same(withoutKstatus(again).status, earlier.status, "how it ended is as it was written");
  },
);

await t.test("kstatus: what is asked of a migration that has ended leaves it done, and is written once", async (t) => {
  startController(t, cluster);
  const kind = new TestKind("done");
  await cluster.createCrd(kind, { storage: "v1", versions: ["v1"] });
  const ended = await untilState(cluster, await createMigration(cluster, kind), ["Succeeded"]);
  await suspend(ended, true);
  await eventually(
    async () =>
      (await readMigration(cluster, ended)).status?.observedGeneration === (ended.metadata.generation ?? 0) + 1,
    "the controller has seen it",
    20_000,
  );
  const seen = await readMigration(cluster, ended);
  t.same(await saidOf(seen), { kstatus: "Current", argo: "Healthy" });
  t.same(seen.status?.conditions, ended.status?.conditions);
  // As a client of kube-storage-version-migrator writes it, which knows nothing of kstatus.
  const theirs = { type: "Succeeded", status: "True", lastUpdateTime: "2026-01-01T00:00:00Z", reason: "theirs" };
  const other = await createMigration(cluster, { group: "", version: "v1", resource: "nobodies" });
  await patchStatus(cluster, other, { conditions: [theirs, { ...theirs, type: "Reconciling" }] });
  await untilSaid(other, "Current", "Healthy");
  const { metadata, status } = await readMigration(cluster, other);
  t.same(status?.conditions, [theirs]);
  await createMigration(cluster, kind).then((one) => untilState(cluster, one, ["Succeeded"]));
  t.equal((await readMigration(cluster, other)).metadata.resourceVersion, metadata.resourceVersion, "not again");
});
