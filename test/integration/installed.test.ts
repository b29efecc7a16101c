import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import tap from "tap";
import { hasFreezeAnnotation } from "../../src/api/owner.ts";
import { storedVersionsOf } from "../../src/api/crd.ts";
import {
  resourceNameOf,
  type StorageState,
  type StorageVersionMigration,
  SYSTEM_NAMESPACE,
} from "../../src/api/migration.ts";
import {
  CERTIFICATE_SECRET,
  MANAGED_BY,
  MANAGED_BY_LABEL,
  WEBHOOK_NAME,
  WEBHOOK_SERVICE,
} from "../../src/api/names.ts";
import { caBundleOf } from "../../src/certs/ca-bundle.ts";
import type { SecretObject } from "../../src/certs/secret-contents.ts";
import { serverNameOf } from "../../src/certs/service-names.ts";
import {
  MERGE_PATCH,
  CRDS,
  MIGRATIONS,
  SECRETS,
  STORAGE_STATES,
  WEBHOOK_CONFIGURATIONS,
} from "../../src/kube/resources.ts";
import { issueServing } from "../webhook/issue-serving.ts";
import { Cluster, eventually } from "./cluster.ts";
import { installSystem } from "./controller-fixture.ts";
import { TestKind } from "./crd-fixture.ts";
import { freePort, ONLY_CUSTOM, type Replica, spawnController, untilReady } from "./replica.ts";

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

/** What a replica logged when it got a signal; every line of its log has to be JSON. */
function signalLineOf(replica: Replica): object | undefined {
  const lines = replica.log().trimEnd().split("\n");
  return lines.map((line) => JSON.parse(line) as { signal?: string }).find(({ signal }) => signal !== undefined);
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
    tt.match(signalLineOf(first), { signal: "SIGTERM", forcingMayLeaveFreeze: true });
    await eventually(() => Promise.resolve(second.isLeading()), `the second replica leads:\n${second.log()}`, 20_000);
  });
});

await tap.test("a Secret that was deleted and applied again is filled at once, not an hour later", async (t) => {
  const replica = await spawnController(t, cluster, { webhookPort: await freePort(), flags: ONLY_CUSTOM });
  await untilReady(replica);
  await eventually(() => Promise.resolve(replica.isLeading()), `the replica leads:\n${replica.log()}`, 30_000);
  const ref = { namespace: SYSTEM_NAMESPACE, name: CERTIFICATE_SECRET };
  const before = caBundleOf(await api.get<SecretObject>(SECRETS, ref));
  t.ok(before);
  await api.delete(SECRETS, ref);
  // As `kubectl apply` of the manifests does; an installed controller may not create Secrets.
  const metadata = { ...ref, labels: { [MANAGED_BY_LABEL]: MANAGED_BY } };
  await api.create(SECRETS, { apiVersion: "v1", kind: "Secret", type: "Opaque", metadata });
  const filled = async (): Promise<string | undefined> => caBundleOf(await api.get<SecretObject>(SECRETS, ref));
  await eventually(async () => (await filled()) !== undefined, `it is filled:\n${replica.log()}`, 20_000);
  t.not(await filled(), before, "by a new CA");
  replica.kill("SIGTERM");
  t.equal(await replica.ended, 0, replica.log());
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
  t.match(signalLineOf(off), { signal: "SIGTERM", forcingMayLeaveFreeze: false }, "it freezes nothing");

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

interface Registered {
  readonly metadata: { readonly resourceVersion: string };
  readonly webhooks: readonly { readonly clientConfig: object }[];
}

function registered(): Promise<Registered> {
  return api.get<Registered>(WEBHOOK_CONFIGURATIONS, { name: WEBHOOK_NAME });
}

/** Writes the caBundle, as a user who mounts a pair has to. */
async function setCaBundle(caBundle: string): Promise<void> {
  const webhooks = (await registered()).webhooks.map((webhook) => ({
    ...webhook,
    clientConfig: { ...webhook.clientConfig, caBundle },
  }));
  await api.patch(WEBHOOK_CONFIGURATIONS, { name: WEBHOOK_NAME }, { type: MERGE_PATCH, body: { webhooks } });
}

async function untilLacking(replicas: readonly Replica[], lacking: RegExp): Promise<void> {
  for (const replica of replicas) {
    const says = async (): Promise<boolean> => lacking.test((await replica.health("/readyz")).text);
    await eventually(says, `a replica is not ready for ${lacking}:\n${replica.log()}`, 20_000);
  }
}

await tap.test(
  "F30: a replica becomes ready once a caBundle was read that trusts its certificate, and stays so",
  async (t) => {
    await api.delete(WEBHOOK_CONFIGURATIONS, { name: WEBHOOK_NAME });
    const certDir = t.testdir({});
    const flags = ["--certificates", "files", "--cert-dir", certDir, "--trigger", "off"];
    const spawn = async (): Promise<Replica> =>
      spawnController(t, cluster, { webhookPort: await freePort(), byService: true, flags });
    const called = serverNameOf({ service: WEBHOOK_SERVICE, namespace: SYSTEM_NAMESPACE });
    const [ours, other] = await Promise.all([issueServing(called), issueServing(called)]);
    const both = await Promise.all([spawn(), spawn()]);
    await untilLacking(both, /^\[-\]webhook failed: there is no serving certificate yet$/m);
    writeFileSync(join(certDir, "tls.key"), ours.pair.keyPem);
    writeFileSync(join(certDir, "tls.crt"), ours.pair.certPem);
    const configuration = `ValidatingWebhookConfiguration "${WEBHOOK_NAME}"`;
    const isEmpty = new RegExp(`^\\[-\\]webhook failed: the caBundle of ${configuration} is empty$`, "m");
    await untilLacking(both, isEmpty);
    await setCaBundle(other.caBundle);
    await untilLacking(
      both,
      new RegExp(`: the caBundle of ${configuration} does not trust the serving certificate: none`),
    );
    t.equal((await both[0].health("/livez")).status, 200, "nothing that a restart would repair");
    await setCaBundle(ours.caBundle);
    await Promise.all(both.map((replica) => untilReady(replica)));

    await setCaBundle("");
    const { resourceVersion } = (await registered()).metadata;
    const third = await spawn();
    await untilLacking([third], isEmpty);
    // By now the others have read the empty one, too.
    await sleep(1_000);
    for (const replica of both) t.equal((await replica.health("/readyz")).status, 200, replica.log());
    t.equal((await registered()).metadata.resourceVersion, resourceVersion, "negative control: nobody repaired it");
    await setCaBundle(ours.caBundle);
    await untilReady(third);
    for (const replica of [...both, third]) {
      replica.kill("SIGTERM");
      t.equal(await replica.ended, 0, replica.log());
    }
  },
);
