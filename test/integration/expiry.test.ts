import t from "tap";
import type { StorageVersionMigration } from "../../src/api/migration.ts";
import { CREATED_BY_LABEL, CREATED_BY_TRIGGER } from "../../src/api/names.ts";
import { isNotFound } from "../../src/kube/absent.ts";
import { MERGE_PATCH, MIGRATIONS } from "../../src/kube/resources.ts";
import { Cluster, eventually } from "./cluster.ts";
import { createMigration, installSystem, patchStatus, readMigration, startController } from "./controller-fixture.ts";

const cluster = await Cluster.start(t);
const { api } = cluster;
await installSystem(cluster);
const RESOURCE = { group: "", version: "v1", resource: "nobodies" };
const [LONG_AGO, SOON] = ["2026-01-01T00:00:00Z", new Date(Date.now() + 3_600_000).toISOString()];

/** A migration that has ended, with a TTL of a minute. */
async function ended(condition: object, completionTime = LONG_AGO, ttl: number | null = 60) {
  const created = await createMigration(cluster, RESOURCE);
  await patchStatus(cluster, created, { conditions: [{ status: "True", ...condition }], completionTime });
  await change(created, { spec: { ttlSecondsAfterFinished: ttl } });
  return created;
}

function change({ metadata }: StorageVersionMigration, body: object): Promise<unknown> {
  return api.patch(MIGRATIONS, metadata, { type: MERGE_PATCH, body });
}

function isThere(migration: StorageVersionMigration): Promise<boolean> {
  return readMigration(cluster, migration).then(
    () => true,
    (error: unknown) => {
      if (isNotFound(error)) return false;
      throw error;
    },
  );
}

await t.test(
  "a finished migration is deleted once its ttlSecondsAfterFinished is over, and no other one",
  async (t) => {
    const done = { type: "Succeeded" };
    const expired = [await ended(done), await ended({ type: "Failed", reason: "ResourceNotFound" })];
    const kept = {
      "without a TTL": await ended(done, LONG_AGO, null),
      "not yet": await ended(done, SOON),
      "by it the trigger knows that it may not freeze the CRD again": await ended({
        type: "Failed",
        reason: "FreezeLifted",
      }),
      "the trigger counts its attempts by it": await ended({ type: "Failed", reason: "ObjectsNotMigrated" }),
      "without a time of its end": await ended(done, "2026-01-01T00:00:00Z"),
    };
    const [, , , ofTrigger, timeless] = Object.values(kept);
    if (ofTrigger === undefined || timeless === undefined) throw new Error("there are five");
    await change(ofTrigger, { metadata: { labels: { [CREATED_BY_LABEL]: CREATED_BY_TRIGGER } } });
    await patchStatus(cluster, timeless, { completionTime: null });
    startController(t, cluster);
    for (const one of expired) {
      await eventually(async () => !(await isThere(one)), `${one.metadata.name} is deleted`, 40_000);
    }
    const later = await ended(done);
    await eventually(async () => !(await isThere(later)), "a later round deletes", 40_000);
    for (const [why, one] of Object.entries(kept)) {
      t.ok(await isThere(one), why);
    }
  },
);

await t.test("of each resource as many finished migrations stay as the controller is told, the newest", async (t) => {
  const other = { ...RESOURCE, resource: "others" };
  const succeeded = async (hour: number, resource = other) => {
    const created = await createMigration(cluster, resource);
    const conditions = [{ type: "Succeeded", status: "True" }];
    await patchStatus(cluster, created, { conditions, completionTime: `2026-01-01T0${hour}:00:00Z` });
    return created;
  };
  const [second, first, third] = [await succeeded(2), await succeeded(1), await succeeded(3)];
  const alone = await succeeded(1, { ...RESOURCE, resource: "singles" });
  startController(t, cluster, { finishedLimit: 2 });
  await eventually(async () => !(await isThere(first)), "the oldest is deleted", 40_000);
  const fourth = await succeeded(4);
  await eventually(async () => !(await isThere(second)), "the oldest is deleted again", 40_000);
  for (const kept of [third, fourth, alone]) t.ok(await isThere(kept));
});

await t.test("the API server refuses a TTL that is no number of seconds", async (t) => {
  const created = await createMigration(cluster, RESOURCE);
  for (const ttlSecondsAfterFinished of [-1, 1.5, "60"]) {
    await t.rejects(change(created, { spec: { ttlSecondsAfterFinished } }), {
      status: 422,
      message: /ttlSecondsAfterFinished/,
    });
  }
});
