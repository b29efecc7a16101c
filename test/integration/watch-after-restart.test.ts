import { setTimeout as delay } from "node:timers/promises";
import { pino } from "pino";
import t from "tap";
import type { StorageVersionMigration } from "../../src/api/migration.ts";
import { followMigration } from "../../src/cli/commands/follow-migration.ts";
import { systemClock } from "../../src/clock.ts";
import { MERGE_PATCH, MIGRATIONS } from "../../src/kube/resources.ts";
import { MigrationFeed } from "../../src/migrations/migration-feed.ts";
import { readsOf } from "../control-plane/api-requests.ts";
import { Cluster, eventually } from "./cluster.ts";
import { installSystem } from "./controller-fixture.ts";
import { TestKind } from "./crd-fixture.ts";

/** How long requests are counted after the restart, and how many there may be: a hot loop sends hundreds a second. */
const COUNT_MS = 4_000;
const MOST_READS = 30;

const cluster = await Cluster.start(t);
const { api } = cluster;
await installSystem(cluster);
const kind = new TestKind("restart");
await cluster.createStale(kind, 1);

await t.test("after a restart of the API server", async (t) => {
  const stop = new AbortController();
  const notes: string[] = [];
  const reporter = { event: () => undefined, note: (text: string) => void notes.push(text) };
  const options = { client: api, clock: systemClock, reporter, force: false, signal: stop.signal };
  const following = followMigration(options, kind.name);
  const seen = new Set<string>();
  const feed = new MigrationFeed({ client: api, clock: systemClock, logger: pino({ level: "silent" }) });
  const feeding = feed.follow((change) => {
    if (change.type === "listed") change.migrations.forEach(({ metadata }) => seen.add(metadata.resourceVersion));
    if (change.type === "changed") seen.add(change.migration.metadata.resourceVersion);
  }, stop.signal);
  await eventually(() => Promise.resolve(seen.size > 0), "the feed shows the migration");

  // What other clients write makes the resourceVersion of the migration older than what the API server begins with.
  for (let n = 0; n < 5; n++)
    await cluster.crd(kind).then(() => api.create(kind.resource("v1"), kind.object(`x${n}`, "v1")));
  const [apiserver] = cluster.controlPlane.apiservers;
  await apiserver?.kill();
  apiserver?.start();
  await apiserver?.waitReady();
  await delay(COUNT_MS);
  const reads = await readsOf(cluster.controlPlane, MIGRATIONS.resource);
  t.ok(reads < MOST_READS, "neither following a migration nor the feed of the controller floods it", { reads });

  const [listed] = (await api.listMetadata(MIGRATIONS)).items;
  const now = new Date().toISOString();
  const done = { type: "Succeeded", status: "True", lastUpdateTime: now, reason: "Done", message: "done" };
  const patch = { type: MERGE_PATCH, body: { status: { conditions: [done] } } };
  const name = listed?.metadata.name ?? "";
  const ended = await api.patch<StorageVersionMigration>(MIGRATIONS, { name }, patch, { subresource: "status" });
  await t.resolves(following, "following sees the end");
  await eventually(() => Promise.resolve(seen.has(ended.metadata.resourceVersion)), "the feed sees the end", 20_000);
  stop.abort();
  await feeding;
});
