import tap from "tap";
import { hasFreezeAnnotation } from "../../src/api/owner.ts";
import { storedVersionsOf } from "../../src/api/crd.ts";
import { resourceNameOf, type StorageState, type StorageVersionMigration } from "../../src/api/migration.ts";
import { WEBHOOK_NAME } from "../../src/api/names.ts";
import { MERGE_PATCH, CRDS, MIGRATIONS, STORAGE_STATES, WEBHOOK_CONFIGURATIONS } from "../../src/kube/resources.ts";
import { Cluster, eventually } from "./cluster.ts";
import { installSystem } from "./controller-fixture.ts";
import { TestKind } from "./crd-fixture.ts";
import { freePort, ONLY_CUSTOM, spawnController, untilReady } from "./replica.ts";

const cluster = await Cluster.start(tap);
const { api } = cluster;
await installSystem(cluster);

function migrationsOf(kind: TestKind): Promise<readonly StorageVersionMigration[]> {
  return api
    .list<StorageVersionMigration>(MIGRATIONS)
    .then((all) => all.filter(({ spec }) => resourceNameOf(spec.resource) === kind.name));
}

function frozenSeen(kind: TestKind): Promise<boolean> {
  return cluster.crd(kind).then(hasFreezeAnnotation);
}

async function isPruned(kind: TestKind): Promise<boolean> {
  const crd = await cluster.crd(kind);
  return storedVersionsOf(crd).join() === "v1" && !hasFreezeAnnotation(crd);
}

await tap.test("two replicas: from a change of the storage version to pruned, by itself", async (t) => {
  const webhookPort = await freePort();
  const first = await spawnController(t, cluster, { webhookPort, flags: ONLY_CUSTOM });
  await untilReady(first);
  await eventually(() => Promise.resolve(first.isLeading()), `the first replica leads:\n${first.log()}`, 30_000);
  const second = await spawnController(t, cluster, { webhookPort, listenPort: await freePort(), flags: ONLY_CUSTOM });
  await untilReady(second);
  t.notOk(second.isLeading());

  const kind = new TestKind("installed");
  await cluster.createStale(kind, 30);
  const changedAt = performance.now();
  await eventually(() => frozenSeen(kind), "the CRD is frozen", 20_000);
  const frozenAfterMs = performance.now() - changedAt;
  t.comment(`frozen ${Math.round(frozenAfterMs)} ms after the change of the storage version`);
  await eventually(() => isPruned(kind), `storedVersions is pruned:\n${first.log()}`, 40_000);
  t.same(await cluster.storedAs(kind), { v1: 30 });
  const [migration] = await migrationsOf(kind);
  t.match(migration?.status?.counts, { migrated: 30, failed: 0 });
  const state = await api.get<StorageState>(STORAGE_STATES, { name: kind.name });
  await eventually(
    async () =>
      (await api.get<StorageState>(STORAGE_STATES, { name: kind.name })).status?.persistedStorageVersionHashes
        ?.length === 1,
    "the StorageState says that all objects are in the current version",
  );
  t.ok(state.status?.currentStorageVersionHash);

  await t.test("metrics and health say so", async (tt) => {
    const metrics = (await first.health("/metrics")).text;
    tt.match(metrics, /^ksvm_leader 1$/m);
    tt.match(metrics, new RegExp(`ksvm_objects_total\\{resource="${kind.name}",outcome="migrated"\\} 30`));
    tt.match(metrics, new RegExp(`ksvm_stored_versions_pruned_total\\{resource="${kind.name}"\\} 1`));
    tt.match(
      metrics,
      /ksvm_certificate_expiry_timestamp_seconds 1\.\d+e\+09|ksvm_certificate_expiry_timestamp_seconds \d{10}/,
    );
    tt.match((await second.health("/metrics")).text, /^ksvm_leader 0$/m);
    tt.match((await first.health("/readyz?verbose")).text, /\[\+\]webhook ok/);
    tt.equal((await first.health("/livez")).status, 200);
  });

  await t.test("a denial names the migration and how to see it", async (tt) => {
    const frozen = new TestKind("installedfrozen");
    await cluster.createStale(frozen, 5);
    await eventually(() => frozenSeen(frozen), "the CRD is frozen", 20_000);
    // The settle time of a second leaves little of it: what is looked for is one denial of a change back.
    const answer = await cluster.setVersions(frozen, { storage: "v1alpha1" }).then(
      () => "changed",
      (error: unknown) => String(error),
    );
    tt.match(answer, /StorageVersionFrozen|changed/);
    await eventually(() => frozenSeen(frozen).then((is) => !is), "the freeze is lifted", 30_000);
  });

  await t.test("the leader told to stop hands over at once", async (tt) => {
    first.kill("SIGTERM");
    tt.equal(await first.ended, 0, first.log());
    await eventually(() => Promise.resolve(second.isLeading()), `the second replica leads:\n${second.log()}`, 20_000);
  });
});

await tap.test("--manage-stored-versions=false leaves nothing behind", async (t) => {
  const webhookPort = await freePort();
  const on = await spawnController(t, cluster, { webhookPort, flags: [...ONLY_CUSTOM] });
  await untilReady(on);
  await eventually(
    async () => (await api.find(WEBHOOK_CONFIGURATIONS, { name: WEBHOOK_NAME })) !== undefined,
    "the webhook is registered",
  );
  on.kill("SIGTERM");
  await on.ended;

  const off = await spawnController(t, cluster, {
    webhookPort,
    flags: [...ONLY_CUSTOM, "--manage-stored-versions", "false"],
  });
  await untilReady(off);
  await eventually(
    async () => (await api.find(WEBHOOK_CONFIGURATIONS, { name: WEBHOOK_NAME })) === undefined,
    "the webhook's configuration is gone",
  );
  const kind = new TestKind("onlyrewritten");
  await cluster.createStale(kind, 5);
  await eventually(
    async () => (await cluster.storedAs(kind))["v1"] === 5,
    `the objects are rewritten:\n${off.log()}`,
    40_000,
  );
  const crd = await cluster.crd(kind);
  t.same(storedVersionsOf(crd), ["v1alpha1", "v1"], "nothing is pruned");
  t.notOk(hasFreezeAnnotation(crd));
  off.kill("SIGTERM");
  t.equal(await off.ended, 0);

  const onAgain = await spawnController(t, cluster, { webhookPort, flags: [...ONLY_CUSTOM] });
  await untilReady(onAgain);
  await eventually(
    async () => (await api.find(WEBHOOK_CONFIGURATIONS, { name: WEBHOOK_NAME })) !== undefined,
    "the webhook is registered again",
  );
  await api.patch(CRDS, kind, { type: MERGE_PATCH, body: { metadata: { labels: { touched: "true" } } } });
  onAgain.kill("SIGTERM");
  t.equal(await onAgain.ended, 0);
  t.notOk(await frozenSeen(kind));
});
