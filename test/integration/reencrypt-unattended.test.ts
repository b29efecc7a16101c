import { createHash } from "node:crypto";
import t from "tap";
import type { MigrationCondition, StorageVersionMigration } from "../../src/api/migration.ts";
import { FORCE_ANNOTATION, REENCRYPT_ANNOTATION } from "../../src/api/names.ts";
import type { InitResult } from "../../src/initializer/initialize.ts";
import { ApiClient } from "../../src/kube/client.ts";
import { loadKubeConfig } from "../../src/kube/connect/config.ts";
import { LEASES, MERGE_PATCH, MIGRATIONS } from "../../src/kube/resources.ts";
import { SYSTEM_NAMESPACE } from "../../src/api/migration.ts";
import { leaseNameOf } from "../../src/lease/lease-acquire.ts";
import { storedWith } from "../control-plane/encryption.ts";
import { Cluster, eventually } from "./cluster.ts";
import { createMigration, installSystem, readMigration, startController, untilState } from "./controller-fixture.ts";
import { PatientTransport } from "./patient-transport.ts";
import { EncryptedObjects, optionsOf, restartWith } from "./encrypted-objects.ts";

const OBJECTS = 20;
const ALL = OBJECTS * 3;
const SECRETS = { group: "", version: "v1", resource: "secrets" };
const CONFIG_MAPS = { group: "", version: "v1", resource: "configmaps" };

const cluster = await Cluster.start(t, { apiservers: 2, overrides: [optionsOf(0, ["key0"]), optionsOf(1, ["key0"])] });
const { api, controlPlane } = cluster;
const [first = "", second = ""] = controlPlane.apiservers.map(({ url }) => url);
const settings = { guard: "policy", apiserverEndpoints: [first, second] } as const;
await installSystem(cluster);
const objects = await EncryptedObjects.create(cluster, OBJECTS);

/** One migration for each resource that the objects are of. */
function createAll(annotations: Readonly<Record<string, string>>): Promise<readonly StorageVersionMigration[]> {
  const all = [SECRETS, CONFIG_MAPS, objects.kind];
  return Promise.all(all.map((resource) => createMigration(cluster, resource, annotations)));
}

async function untilAll(migrations: readonly StorageVersionMigration[]): Promise<readonly MigrationCondition[]> {
  const ended = await Promise.all(migrations.map((one) => untilState(cluster, one, ["Succeeded"], 600_000)));
  return ended.map((one) => conditionOf(one, "Succeeded"));
}

function conditionOf({ status }: StorageVersionMigration, type: string): MigrationCondition {
  return status?.conditions?.find((one) => one.type === type) ?? { type: "Pending", status: "Unknown" };
}

function digestOf(keys: readonly string[]): string {
  return `sha256:${createHash("sha256").update(optionsOf(0, keys).encryptionConfig).digest("hex")}`;
}

/** Waits until a migration is Waiting for this reason. */
async function untilWaiting(migration: StorageVersionMigration, reason: string): Promise<MigrationCondition> {
  const waiting = await untilState(cluster, migration, ["Waiting"]);
  const found = conditionOf(waiting, "Waiting");
  if (found.reason !== reason) {
    throw new Error(`it waits otherwise: ${JSON.stringify(found)}`);
  }
  return found;
}

await t.test("a migration that re-encrypts waits for an API server that is late, and names it", async (t) => {
  await restartWith(cluster, ["key0", "key1"]);
  await restartWith(cluster, ["key1", "key0"], { indexes: [0] });
  const { stop } = startController(t, cluster, settings);

  const migrations = await createAll({ [REENCRYPT_ANNOTATION]: "true" });
  for (const migration of migrations) {
    const { message } = await untilWaiting(migration, "NotConverged");
    t.match(message, new RegExp(`the API servers do not encrypt alike: ${second}: it uses encryption configuration`));
    t.notMatch(message, /run again|--assume/, "no user is there to do so");
  }
  await restartWith(cluster, ["key1", "key0"], { indexes: [1] });
  const ended = await untilAll(migrations);
  for (const { reason, message } of ended) {
    t.equal(reason, "Reencrypted");
    t.equal(message, `every object is encrypted by configuration ${digestOf(["key1", "key0"])}`);
  }
  t.same(await objects.keys(), { [storedWith("key1")]: ALL });
  await stop();
  await restartWith(cluster, ["key1"]);
  t.ok(await objects.areReadable(), "every object can be read without the old key");
});

await t.test(
  "negative control: through an API server that is late, a forced migration succeeds with the old key",
  async (t) => {
    await restartWith(cluster, ["key1", "key2"]);
    await restartWith(cluster, ["key2", "key1"], { indexes: [0] });
    const client = new ApiClient(
      new PatientTransport(loadKubeConfig({ kubeconfig: controlPlane.kubeconfigFor("admin", 1) })),
    );
    t.teardown(() => client.transport.close());
    const { stop } = startController(t, cluster, { ...settings, client });
    const ended = await untilAll(await createAll({ [FORCE_ANNOTATION]: "true" }));
    t.match(ended, [{ reason: "Migrated" }, { reason: "Migrated" }, { reason: "Migrated" }]);
    t.same(await objects.keys(), { [storedWith("key1")]: ALL }, "every object keeps the old key");
    await stop();
    await restartWith(cluster, ["key1", "key2"]);
  },
);

await t.test(
  "init --force --expect-config has every stored resource re-encrypted once that configuration is used",
  async (t) => {
    const meant = digestOf(["key2", "key1"]);
    const { code, stdout, stderr } = await cluster.ksvm([
      "init",
      "-y",
      "-o",
      "json",
      "--force",
      "--expect-config",
      meant,
    ]);
    t.equal(code, 0, stderr);
    const created = (JSON.parse(stdout) as InitResult).migrations;
    t.ok(
      objects.names.every((name) => created.some(({ resource }) => resource === name)),
      "also of a CRD that is clean",
    );
    const isOurs = new Set(created.map(({ name }) => name));
    const all = (await api.list<StorageVersionMigration>(MIGRATIONS)).filter(({ metadata }) =>
      isOurs.has(metadata.name),
    );
    t.ok(all.every(({ metadata }) => metadata.annotations?.[REENCRYPT_ANNOTATION] === meant));
    const again = await cluster.ksvm(["init", "-y", "-o", "json"]);
    const { deleted, skipped } = JSON.parse(again.stdout) as InitResult;
    t.equal(deleted, 0, "init without --force puts nothing in their place");
    t.ok(skipped.some(({ resource, reason }) => resource === "secrets" && reason === "its migration re-encrypts it"));

    startController(t, cluster, { ...settings, maxConcurrent: 8 });
    const secrets = all.find(({ spec }) => spec.resource.resource === "secrets");
    if (secrets === undefined) {
      throw new Error("there is one for each resource");
    }
    const { message } = await untilWaiting(secrets, "NotConverged");
    t.match(
      message,
      new RegExp(
        `${first}: it uses encryption configuration .*, which is not ${meant} of the annotation ${REENCRYPT_ANNOTATION}$`,
      ),
      "both use the old one",
    );
    await restartWith(cluster, ["key2", "key1"]);
    const ended = await untilAll(all);
    t.ok(ended.every(({ reason }) => reason === "Reencrypted"));
    t.same(await objects.keys(), { [storedWith("key2")]: ALL });
    await restartWith(cluster, ["key2"]);
    t.ok(await objects.areReadable(), "every object can be read without the old key");
  },
);

await t.test("a migration whose annotation cannot be read fails, and says which values it may have", async (t) => {
  startController(t, cluster, settings);
  const migration = await createMigration(cluster, SECRETS, { [REENCRYPT_ANNOTATION]: "yes" });
  const failed = await untilState(cluster, migration, ["Failed"]);
  t.match(conditionOf(failed, "Failed"), {
    reason: "AnnotationInvalid",
    message: /is not "true", "false" or the SHA-256/,
  });
});

await t.test("a migration that a user has re-encrypt while it runs ends only after it did", async (t) => {
  startController(t, cluster, { ...settings, maxQps: 10, pageSize: 5 });
  const migration = await createMigration(cluster, objects.kind, { [FORCE_ANNOTATION]: "true" });
  const isUnderWay = async () => ((await readMigration(cluster, migration)).status?.counts?.skipped ?? 0) > 0;
  await eventually(isUnderWay, "it is under way");
  const annotations = { [REENCRYPT_ANNOTATION]: "true" };
  await api.patch(MIGRATIONS, migration.metadata, { type: MERGE_PATCH, body: { metadata: { annotations } } });
  const [ended] = await untilAll([migration]);
  t.equal(ended?.reason, "Reencrypted");
});

await t.test("ksvm reencrypt and a migration that re-encrypts the same resource exclude each other", async (t) => {
  startController(t, cluster, { ...settings, maxQps: 4, pageSize: 5 });
  const migration = await createMigration(cluster, SECRETS, { [REENCRYPT_ANNOTATION]: "true" });
  const lease = { namespace: SYSTEM_NAMESPACE, name: leaseNameOf("secrets") };
  await eventually(async () => (await api.find(LEASES, lease)) !== undefined, "its run holds the Lease");
  const args = ["--settle", "1s", "--apiserver-endpoints", `${first},${second}`, "--lease-namespace", SYSTEM_NAMESPACE];
  const run = await cluster.ksvm(["reencrypt", ...args, "secrets"]);
  t.equal(run.code, 1, run.stdout);
  t.match(run.stderr, /\[AlreadyMigrating\]/);
  await untilAll([migration]);
});
