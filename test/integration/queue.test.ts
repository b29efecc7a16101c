import t from "tap";
import { storedVersionsOf } from "../../src/api/crd.ts";
import { stateOf, type StorageVersionMigration } from "../../src/api/migration.ts";
import { hasFreezeAnnotation } from "../../src/api/owner.ts";
import { Cluster, eventually } from "./cluster.ts";
import { createMigration, installSystem, readMigration, untilState } from "./controller-fixture.ts";
import { TestKind } from "./crd-fixture.ts";
import { freePort, spawnController, untilReady } from "./replica.ts";
import { conversionBy, serveConversion } from "./serve-webhook.ts";
import { WebhookService } from "./webhook-service.ts";

const cluster = await Cluster.start(t);
await installSystem(cluster);
const service = await WebhookService.start(t);

/** The row that `kubectl get migrations` has for a migration, by the names of its columns. */
async function rowOf({ metadata: { name } }: StorageVersionMigration): Promise<Record<string, string | number | null>> {
  const { body } = await cluster.api.transport.request<{
    columnDefinitions: readonly { name: string }[];
    rows: readonly { cells: readonly (string | number | null)[] }[];
  }>({
    method: "GET",
    path: `/apis/migration.k8s.io/v1alpha1/storageversionmigrations/${name}`,
    accept: "application/json;as=Table;g=meta.k8s.io;v=v1",
  });
  const cells = body.rows[0]?.cells ?? [];
  return Object.fromEntries(body.columnDefinitions.map((column, index) => [column.name, cells[index] ?? null]));
}

await t.test(
  "A silent queue: migrations whose webhook is down say so at once, give up their place, and have a turn again",
  async (t) => {
    const listenPort = await freePort();
    const flags = ["--trigger=off", "--concurrent-migrations=1"];
    const replica = await spawnController(t, cluster, { webhookPort: service.port, listenPort, flags });
    service.add(replica, listenPort);
    await untilReady(replica);
    await eventually(async () => replica.isLeading(), "the replica leads");
    const webhook = await serveConversion(t);
    const stuckKinds = [new TestKind("stucka"), new TestKind("stuckb")];
    for (const kind of stuckKinds) {
      await cluster.createStale(kind, 3, { conversion: conversionBy(webhook) });
    }
    const [quick, followed] = [new TestKind("quick"), new TestKind("followed")];
    await cluster.createStale(quick, 3);
    await cluster.createStale(followed, 3);
    webhook.setDown(true);
    const startedAt = performance.now();
    const since = (): string => `${((performance.now() - startedAt) / 1_000).toFixed(1)} s`;

    const stuck = await Promise.all(stuckKinds.map((kind) => createMigration(cluster, kind)));
    const [first, second] = stuck;
    if (first === undefined || second === undefined) {
      throw new Error("two migrations were created");
    }
    const third = await createMigration(cluster, quick);
    const run = cluster.spawnKsvm(t, ["migrate", followed.name]);
    await eventually(async () => {
      const rows = await Promise.all([...stuck, third].map(rowOf));
      return rows.some(({ State, Queue }) => State === "Pending" && Queue === 1);
    }, "the queue shows positions");
    t.comment(`positions after ${since()}`);
    await eventually(
      async () => (await Promise.all(stuck.map(rowOf))).some(({ Reason }) => Reason === "WaitingForWebhook"),
      `the reason shows:\n${replica.log().slice(-3_000)}`,
    );
    t.comment(`the reason after ${since()}`);
    await eventually(
      async () => /: pending: number \d in the queue; at work: stuck/.test(run.stdout),
      `ksvm migrate says where it is:\n${run.stdout}`,
    );
    const status = await cluster.ksvm(["status"]);
    t.match(status.stdout, /stuck.* WaitingForWebhook: webhook "conversion webhook for example.com/);
    t.match(replica.log(), /"msg":"A migration (makes no progress|waits)/);
    t.match(replica.log(), /"msg":"A migration is in the queue"/);

    await untilState(cluster, third, ["Succeeded"], 120_000);
    const { code, stdout, stderr } = await run.ended;
    t.equal(code, 0, `${stdout}${stderr}`);
    t.comment(`those that could run are done after ${since()}`);
    t.same(await cluster.storedAs(quick), { v1: 3 });
    for (const [index, kind] of stuckKinds.entries()) {
      const migration = stuck[index] ?? first;
      t.notOk(["Succeeded", "Failed"].includes(stateOf(await readMigration(cluster, migration))), "it is not over");
      t.same(storedVersionsOf(await cluster.crd(kind)), ["v1alpha1", "v1"]);
    }

    webhook.setDown(false);
    const more = await Promise.all(
      ["m1", "m2", "m3"].map(async (word) => {
        const kind = new TestKind(word);
        await cluster.createStale(kind, 3);
        return createMigration(cluster, kind);
      }),
    );
    for (const migration of [...stuck, ...more]) {
      await untilState(cluster, migration, ["Succeeded"], 180_000);
      t.equal((await readMigration(cluster, migration)).status?.queuePosition, undefined);
    }
    for (const kind of stuckKinds) {
      t.same(await cluster.storedAs(kind), { v1: 3 });
      t.notOk(hasFreezeAnnotation(await cluster.crd(kind)));
    }
    replica.kill("SIGTERM");
    t.equal(await replica.ended, 0, replica.log().slice(-2_000));
  },
);

await t.test("A hung webhook: what a migration waits for shows before the API server gives up", async (t) => {
  const listenPort = await freePort();
  const replica = await spawnController(t, cluster, {
    webhookPort: service.port,
    listenPort,
    flags: ["--trigger=off"],
  });
  service.add(replica, listenPort);
  await untilReady(replica);
  await eventually(async () => replica.isLeading(), "the replica leads");
  const webhook = await serveConversion(t);
  const kind = new TestKind("hung");
  await cluster.createStale(kind, 3, { conversion: conversionBy(webhook) });
  webhook.setHung(true);
  const migration = await createMigration(cluster, kind);
  const hasLine = async (): Promise<boolean> => replica.log().includes("has not answered GET /apis/");
  await eventually(hasLine, `the log says what is waited for:\n${replica.log().slice(-3_000)}`);
  // Its own failure, which names the webhook, comes when the API server has waited for 30 s.
  const line =
    replica
      .log()
      .split("\n")
      .find((text) => text.includes("has not answered GET /apis/")) ?? "";
  t.match(line, /"reason":"WaitingForOthers".*has not answered GET \S+hung\S* for 5 s/);
  t.notMatch(replica.log().split(line)[0], /failed calling webhook|conversion webhook for/, "it came first");
  const reasons = async (): Promise<unknown> => (await rowOf(migration))["Reason"];
  await eventually(async () => (await reasons()) === "WaitingForWebhook", "then the API server names the webhook");
  webhook.setHung(false);
  await untilState(cluster, migration, ["Succeeded"], 180_000);
  t.same(await cluster.storedAs(kind), { v1: 3 });
  replica.kill("SIGTERM");
  t.equal(await replica.ended, 0, replica.log().slice(-2_000));
});
