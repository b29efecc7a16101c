import t, { type Test } from "tap";
import { storedVersionsOf } from "../../src/api/crd.ts";
import { isFinished, type StorageVersionMigration } from "../../src/api/migration.ts";
import { hasFreezeAnnotation } from "../../src/api/owner.ts";
import { MERGE_PATCH, MIGRATIONS } from "../../src/kube/resources.ts";
import { assertUnfrozen } from "./assert-no-traces.ts";
import { Cluster, eventually } from "./cluster.ts";
import { createMigration, installSystem, readMigration, untilState } from "./controller-fixture.ts";
import { GROUP, TestKind } from "./crd-fixture.ts";
import { freePort, ONLY_CUSTOM, type Replica, spawnController, untilReady } from "./replica.ts";
import { untilRewriting } from "./slow-run.ts";
import { MigrationApi } from "./trigger-harness.ts";
import { WebhookService } from "./webhook-service.ts";

const cluster = await Cluster.start(t);
await installSystem(cluster);
const migrations = new MigrationApi(cluster);
const service = await WebhookService.start(t);

const OBJECTS = 200;
const SLOW = ["--max-qps=15", "--page-size=10", ...ONLY_CUSTOM];

async function spawn(t: Test): Promise<Replica> {
  const listenPort = await freePort();
  const replica = await spawnController(t, cluster, { webhookPort: service.port, listenPort, flags: SLOW });
  service.add(replica, listenPort);
  await untilReady(replica);
  return replica;
}

async function untilLeading(replica: Replica): Promise<void> {
  await eventually(async () => replica.isLeading(), `the replica leads:\n${replica.log().slice(-2_000)}`);
}

async function stop(...replicas: readonly Replica[]): Promise<void> {
  for (const replica of replicas) {
    replica.kill("SIGTERM");
    t.equal(await replica.ended, 0, replica.log().slice(-2_000));
  }
}

/** Waits until the trigger has a migration of the CRD under way, and objects are rewritten. */
async function untilTriggered(kind: TestKind): Promise<StorageVersionMigration> {
  await untilRewriting(cluster, kind);
  // The one for the first storage version was replaced.
  return newestOf(kind);
}

async function newestOf(kind: TestKind): Promise<StorageVersionMigration> {
  const newest = (await migrations.migrations(kind.name)).at(-1);
  if (newest === undefined) {
    throw new Error(`there is no migration of ${kind.name}`);
  }
  return newest;
}

async function revisionsOf(kind: TestKind): Promise<readonly number[]> {
  const stored = await cluster.controlPlane.stored.storedObjects(GROUP, kind.plural);
  return stored.map(({ modRevision }) => modRevision);
}

/** How often each object was written since it was created, as etcd counts. */
async function writesOf(kind: TestKind): Promise<readonly number[]> {
  const stored = await cluster.controlPlane.stored.storedObjects(GROUP, kind.plural);
  return stored.map(({ version }) => version);
}

function suspend({ metadata: { name } }: StorageVersionMigration, isSuspended: boolean): Promise<unknown> {
  return cluster.api.patch(MIGRATIONS, { name }, { type: MERGE_PATCH, body: { spec: { suspend: isSuspended } } });
}

/** The freeze is lifted, and nothing is written for some seconds, by whomever. */
async function assertStopped(t: Test, kind: TestKind, since: number): Promise<void> {
  await eventually(async () => !hasFreezeAnnotation(await cluster.crd(kind)), "the freeze is lifted");
  const seconds = (performance.now() - since) / 1_000;
  t.ok(seconds < 60, `soon: ${seconds.toFixed(1)} s`);
  t.comment(`unfrozen ${seconds.toFixed(1)} s after it was suspended`);
  const before = await revisionsOf(kind);
  await new Promise((resolve) => setTimeout(resolve, 5_000));
  t.same(await revisionsOf(kind), before, "nothing is written any more");
  t.notOk(hasFreezeAnnotation(await cluster.crd(kind)), "it is not frozen again");
  t.ok(((await cluster.storedAs(kind))["v1alpha1"] ?? 0) > 0, "there is work left");
  t.same(storedVersionsOf(await cluster.crd(kind)), ["v1alpha1", "v1"], "nothing is pruned");
  await assertUnfrozen(t, cluster, kind);
}

async function assertResumed(t: Test, kind: TestKind, migration: StorageVersionMigration): Promise<void> {
  const { status } = await untilState(cluster, migration, ["Succeeded"], 90_000);
  t.ok((status?.counts?.migrated ?? OBJECTS) < OBJECTS, "it went on at the checkpoint");
  t.same(await cluster.storedAs(kind), { v1: OBJECTS });
  t.same(storedVersionsOf(await cluster.crd(kind)), ["v1"]);
  t.same(new Set(await writesOf(kind)), new Set([2]), "each object was written once, besides its creation");
  await assertUnfrozen(t, cluster, kind);
}

await t.test(
  "spec.suspend stops a run and its trigger, a leader change leaves it so, and without it the run goes on at the checkpoint",
  async (t) => {
    const leader = await spawn(t);
    await untilLeading(leader);
    const kind = new TestKind("stop");
    await cluster.createStale(kind, OBJECTS);
    const migration = await untilTriggered(kind);

    await suspend(migration, true);
    await assertStopped(t, kind, performance.now());
    const stopped = await untilState(cluster, migration, ["Suspended"]);
    t.match(stopped.status?.conditions?.[0], {
      type: "Suspended",
      reason: "SuspendedByUser",
      message: /spec\.suspend/,
    });
    const status = await cluster.ksvm(["status", kind.name]);
    t.match(status.stdout, /Suspended .*to continue, set spec\.suspend to false/);

    const other = await spawn(t);
    leader.kill("SIGKILL");
    await leader.ended;
    await untilLeading(other);
    const { lastHeartbeatTime } = (await migrations.state(kind.name))?.status ?? {};
    t.ok(lastHeartbeatTime);
    await assertStopped(t, kind, performance.now());
    t.same(
      (await migrations.migrations(kind.name)).map(({ metadata }) => metadata.uid),
      [migration.metadata.uid],
      "the trigger created no other",
    );

    const asked = await createMigration(cluster, kind);
    await eventually(
      async () => /is suspended/.test((await readMigration(cluster, asked)).status?.conditions?.[0]?.message ?? ""),
      "another migration of the resource is held back, and says why",
    );
    await suspend(migration, false);
    await assertResumed(t, kind, migration);
    await eventually(
      async () => (await migrations.hashes(kind.name))?.persisted.length === 1,
      "the trigger takes the one that was resumed for the proof that it is",
    );
    await untilState(cluster, asked, ["Succeeded"], 60_000);
    t.equal((await migrations.migrations(kind.name)).filter((one) => !isFinished(one)).length, 0);
    await stop(other);
  },
);

await t.test("init leaves a suspended migration as it is", async (t) => {
  t.equal((await cluster.ksvm(["init", "-y"])).code, 0);
  const [stopped] = await migrations.migrations("configmaps");
  if (stopped === undefined) {
    throw new Error("init created no migration of configmaps");
  }
  await suspend(stopped, true);
  const again = await cluster.ksvm(["init", "-y"]);
  t.match(again.stdout, /left out "configmaps": its migration is suspended/);
  t.same(
    (await migrations.migrations("configmaps")).map(({ metadata }) => metadata.uid),
    [stopped.metadata.uid],
  );
});
