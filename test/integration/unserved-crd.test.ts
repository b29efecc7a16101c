import t from "tap";
import { storedVersionsOf } from "../../src/api/crd.ts";
import { resourceNameOf, type StorageVersionMigration } from "../../src/api/migration.ts";
import { MIGRATIONS } from "../../src/kube/resources.ts";
import { assertUnfrozen } from "./assert-no-traces.ts";
import { Cluster, eventually } from "./cluster.ts";
import { createMigration, installSystem, readMigration, untilState } from "./controller-fixture.ts";
import { TestKind } from "./crd-fixture.ts";
import { balanceRequests } from "./http-balancer.ts";
import { freePort, ONLY_CUSTOM, spawnController, untilReady } from "./replica.ts";
import { untilRewriting } from "./slow-run.ts";
import { MigrationApi } from "./trigger-harness.ts";
import { WebhookService } from "./webhook-service.ts";

const GROUP = "/apis/migration.k8s.io";
const OBJECTS = 100;

const cluster = await Cluster.start(t, { apiservers: 2 });
await installSystem(cluster);
const { controlPlane } = cluster;
const service = await WebhookService.start(t);

/** Whether the second API server does not serve our API group, and how often it said so. */
const second = { isBehind: false, answers: 0 };

/**
 * A real API server follows its CRDs within moments and cannot be held back. So the balancer asks the second one for a
 * group that no CRD defines: the 404 is the one of a real API server that does not serve a path. Watches stay with the
 * first one, as a connection does that was opened earlier.
 */
const kubeconfig = await balanceRequests(
  t,
  controlPlane,
  (path) => (second.isBehind && path.startsWith(GROUP) && !path.includes("watch=true") ? 1 : 0),
  {
    rewrite: (path, server) => {
      if (server === 0) {
        return path;
      }
      second.answers++;
      return path.replace(GROUP, "/apis/unserved.example.com");
    },
  },
);

async function migrationsOf({ name }: TestKind): Promise<readonly StorageVersionMigration[]> {
  const all = await cluster.api.list<StorageVersionMigration>(MIGRATIONS);
  return all.filter(({ spec }) => resourceNameOf(spec.resource) === name);
}

/** Holds the second API server back until it has answered for us `count` times. */
async function whileBehind(count: number, log: () => string): Promise<void> {
  second.answers = 0;
  second.isBehind = true;
  await eventually(async () => second.answers >= count, `404s were answered:\n${log().slice(-3_000)}`, 120_000);
  second.isBehind = false;
}

await t.test("A CRD that one of two API servers does not serve yet costs no migration", async (t) => {
  const listenPort = await freePort();
  const replica = await spawnController(
    t,
    { kubeconfig },
    {
      webhookPort: service.port,
      listenPort,
      flags: [
        ...ONLY_CUSTOM,
        "--trigger-interval=5s",
        "--max-qps=10",
        "--page-size=10",
        `--apiserver-endpoints=${controlPlane.apiservers.map(({ url }) => url).join(",")}`,
      ],
    },
  );
  service.add(replica, listenPort);
  await untilReady(replica);
  await eventually(async () => replica.isLeading(), "the replica leads");

  // The trigger creates it: what it has seen run must not be new to it.
  const long = new TestKind("long");
  await cluster.createStale(long, OBJECTS);
  await eventually(
    async () => (await migrationsOf(long)).length > 0,
    `the trigger saw it:\n${replica.log().slice(-3_000)}`,
  );
  await untilRewriting(cluster, long);
  const [running] = await migrationsOf(long);
  if (running === undefined) {
    throw new Error("the migration is gone");
  }
  await whileBehind(8, () => replica.log());
  const [after, ...others] = await migrationsOf(long);
  t.same([after?.metadata.uid, others.length], [running.metadata.uid, 0], "it is the same one, and the only one");
  await untilState(cluster, running, ["Succeeded"], 180_000);
  t.same(await cluster.storedAs(long), { v1: OBJECTS });
  t.same(storedVersionsOf(await cluster.crd(long)), ["v1"]);
  await assertUnfrozen(t, cluster, long);

  // The watch tells of one, and a read of it answers that there is nothing.
  const asked = new TestKind("asked");
  await cluster.createCrd(asked, { storage: "v1" });
  // What runs when the trigger first sees the CRD proves nothing, and the trigger replaces it.
  await eventually(async () => {
    const { current, persisted = [] } = (await new MigrationApi(cluster).hashes(asked.name)) ?? {};
    return persisted.length === 1 && persisted[0] === current;
  }, "the trigger has looked after the CRD");
  second.isBehind = true;
  const created = await createMigration(cluster, asked);
  await whileBehind(4, () => replica.log());
  await untilState(cluster, created, ["Succeeded"], 180_000);
  t.equal((await readMigration(cluster, created)).metadata.uid, created.metadata.uid);
  t.notMatch(replica.log(), /was deleted/, "none counts as deleted");
  t.match(replica.log(), /404 page not found/, "negative control: it was told that there is nothing");
  replica.kill("SIGTERM");
  t.equal(await replica.ended, 0, replica.log().slice(-2_000));
});
