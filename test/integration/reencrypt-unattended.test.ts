import { createHash } from "node:crypto";
import t from "tap";
import { type MigrationCondition, resourceNameOf, type StorageVersionMigration } from "../../src/api/migration.ts";
import { REENCRYPT_ANNOTATION } from "../../src/api/names.ts";
import type { InitResult } from "../../src/initializer/initialize.ts";
import { MIGRATIONS } from "../../src/kube/resources.ts";
import { storedWith } from "../control-plane/encryption.ts";
import { Cluster } from "./cluster.ts";
import { startController } from "./controller.ts";
import { installSystem, untilState } from "./migrations.ts";
import { EncryptedObjects, ENCRYPTED } from "./encrypted-objects.ts";
import { withFewResources } from "./few-resources.ts";

const OBJECTS = 10;
const OLD = ["key0", "key1"];
const NEW = ["key1", "key0"];

const cluster = await Cluster.start(t, { apiservers: 2, overrides: [withKeys(0, OLD), withKeys(1, OLD)] });
const { api, controlPlane } = cluster;
const apiserverEndpoints = controlPlane.apiservers.map(({ url }) => url);
const digest = `sha256:${createHash("sha256").update(withKeys(0, NEW).encryptionConfig).digest("hex")}`;
await installSystem(cluster);
const objects = await EncryptedObjects.create(cluster, OBJECTS);

function withKeys(index: number, keys: readonly string[]) {
  return withFewResources(keys, { index, resources: ENCRYPTED });
}

async function init(...flags: readonly string[]): Promise<InitResult> {
  const { code, stderr, stdout } = await cluster.ksvm(["init", "-y", "-o", "json", ...flags]);
  if (code !== 0) throw new Error(stderr);
  return JSON.parse(stdout) as InitResult;
}

/** Waits until a migration is in a state. @returns its condition of that state */
async function until(migration: StorageVersionMigration, state: string): Promise<MigrationCondition | undefined> {
  const { status } = await untilState(cluster, migration, [state], 600_000);
  return status?.conditions?.find(({ type }) => type === state);
}

await t.test(
  "init --force --expect-config has the controller re-encrypt everything, once every API server uses it",
  async (t) => {
    await init("--force", "--expect-config", digest);
    const all = await api.list<StorageVersionMigration>(MIGRATIONS);
    t.ok(all.length > objects.names.length, "there is one for each served resource");
    t.ok(all.every(({ metadata }) => metadata.annotations?.[REENCRYPT_ANNOTATION] === digest));
    const { deleted, skipped } = await init();
    t.equal(deleted, 0, "init without --force puts nothing in their place");
    t.ok(skipped.some(({ resource, reason }) => resource === "secrets" && reason === "its migration re-encrypts it"));
    const isEncrypted = ({ spec }: StorageVersionMigration): boolean =>
      objects.names.includes(resourceNameOf(spec.resource));
    const migrations = all.filter(isEncrypted);
    t.equal(migrations.length, objects.names.length, "also of a CRD that is clean");
    // The others only take time.
    for (const { metadata } of all.filter((one) => !isEncrypted(one))) {
      await api.delete(MIGRATIONS, { name: metadata.name });
    }

    await controlPlane.restartApiserver(0, withKeys(0, NEW));
    await startController(t, cluster, { flags: [`--apiserver-endpoints=${apiserverEndpoints.join(",")}`] });
    const secrets = migrations.find(({ spec }) => spec.resource.resource === "secrets");
    const waiting = secrets && (await until(secrets, "Waiting"));
    t.equal(waiting?.reason, "NotConverged");
    t.match(
      waiting?.message,
      new RegExp(`${apiserverEndpoints[1]}: it uses encryption configuration .*${digest} of the`),
    );
    t.notMatch(waiting?.message, /run again|--assume/, "no user is there to do so");

    await controlPlane.restartApiserver(1, withKeys(1, NEW));
    for (const migration of migrations) {
      const message = `every object is encrypted by configuration ${digest}`;
      t.match(await until(migration, "Succeeded"), { reason: "Reencrypted", message });
    }
    t.same(await objects.keys(), { [storedWith("key1")]: OBJECTS * 3 });
    t.ok(await objects.areReadable(), "every object reads back as it was");
  },
);
