import t from "tap";
import { storageVersionHashOf } from "../../src/api/crd.ts";
import { Cluster } from "./cluster.ts";
import { createMigration, deleteMigration, installSystem } from "./controller-fixture.ts";
import { GROUP, TestKind } from "./crd-fixture.ts";
import { MigrationApi, startTrigger } from "./trigger-harness.ts";

const LOOKS = 5;
const cluster = await Cluster.start(t);
await installSystem(cluster);
const migrations = new MigrationApi(cluster);

// The migration controller does not run here: the test plays it, and deletes what it would delete.
await t.test("the trigger creates no migration in place of one that was deleted by its TTL", async (t) => {
  const running = startTrigger(t, cluster);
  await running.settled();
  const kind = new TestKind("expired");
  await cluster.createCrd(kind, { storage: "v1" });
  const hash = storageVersionHashOf(GROUP, "v1", kind.kind);
  await migrations.setCondition(await migrations.nextMigration(kind.name), "Succeeded");
  await migrations.waitForHashes(kind.name, { persisted: [hash], current: hash });
  const uids = async () => (await migrations.migrations(kind.name)).map(({ metadata }) => metadata.uid);
  const before = await uids();

  for (const end of ["Succeeded", "Failed"] as const) {
    const ofUser = await createMigration(cluster, kind);
    await migrations.setCondition(ofUser, end);
    await deleteMigration(cluster, ofUser);
    for (let look = 0; look < LOOKS; look++) {
      running.trigger.pollSoon();
      await running.settled();
    }
    t.same(await uids(), before, `neither another one, nor one less of the trigger's, after ${end}`);
    await migrations.waitForHashes(kind.name, { persisted: [hash], current: hash });
  }
});
