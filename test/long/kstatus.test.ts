// What kstatus, by which Helm and Flux wait, and the health script for Argo CD say of a migration. Go builds the judge.
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import t from "tap";
import { isOfKstatus } from "../../src/api/kstatus.ts";
import type { StorageVersionMigration } from "../../src/api/migration.ts";
import { Cluster, eventually } from "../integration/cluster.ts";
import { SLOWLY, startController } from "../integration/controller.ts";
import { TestKind } from "../integration/crd-fixture.ts";
import {
  createMigration,
  installSystem,
  patchMigration,
  patchStatus,
  readMigration,
  untilState,
} from "../integration/migrations.ts";
import { rejectUpdatesOf } from "../integration/reject-updates.ts";
import { untilRewriting } from "../integration/slow-run.ts";
import { healthScript } from "../kstatus/health-script.ts";
import { ensureJudge } from "../kstatus/judge.ts";

const root = t;
const judge = await ensureJudge();
const cluster = await Cluster.start(t);
await installSystem(cluster);
const script = join(t.testdir(), "health.lua");
writeFileSync(script, healthScript());

/** What kstatus and Argo CD say of a migration. */
async function saidOf(migration: StorageVersionMigration): Promise<string> {
  const [kstatus, argo] = [await judge.kstatus(migration), await judge.argo(migration, script)];
  return `${kstatus.status} ${argo.status}`;
}

/** The same of one without what is there for kstatus. */
function bareOf(migration: StorageVersionMigration): StorageVersionMigration {
  const { observedGeneration: _, conditions = [], ...status } = migration.status ?? {};
  return { ...migration, status: { ...status, conditions: conditions.filter(({ type }) => !isOfKstatus(type)) } };
}

const kind = new TestKind("judged");
await cluster.createStale(kind, 100);
const migration = await createMigration(cluster, kind);
const now = () => readMigration(cluster, migration);

await t.test("a migration that no replica has looked at is not done", async (t) => {
  t.equal(await saidOf(await now()), "InProgress Progressing");
  t.equal((await judge.kstatus(bareOf(await now()))).status, "Current", "negative control");
});

await t.test("one that is in the queue, runs or is suspended is in progress, and done when it has ended", async (t) => {
  await startController(root, cluster, { flags: SLOWLY });
  await untilRewriting(cluster, kind);
  t.equal(await saidOf(await now()), "InProgress Progressing");
  await patchMigration(cluster, migration, { spec: { suspend: true } });
  t.equal(await saidOf(await untilState(cluster, migration, ["Suspended"])), "InProgress Suspended");
  await patchMigration(cluster, migration, { spec: { suspend: false } });
  const ended = await untilState(cluster, migration, ["Succeeded"]);
  t.equal(await saidOf(ended), "Current Healthy");
  await patchMigration(cluster, migration, { spec: { suspend: true } });
  await eventually(async () => (await saidOf(await now())) === "Current Healthy", "whatever is asked of it later");
});

await t.test("one that has failed is failed, also where another client wrote its status", async (t) => {
  const refused = new TestKind("refused");
  await cluster.createStale(refused, 2);
  t.teardown(await rejectUpdatesOf(cluster, refused, "w1"));
  const failed = await untilState(cluster, await createMigration(cluster, refused), ["Failed"]);
  t.equal(await saidOf(failed), "Failed Degraded");
  t.match(await judge.kstatus(failed), { message: /1 objects could not be migrated/ });
  await patchStatus(cluster, failed, { observedGeneration: null, conditions: bareOf(failed).status?.conditions });
  await eventually(
    async () => (await saidOf(await readMigration(cluster, failed))) === "Failed Degraded",
    "the controller fills in what kstatus needs",
  );
});
