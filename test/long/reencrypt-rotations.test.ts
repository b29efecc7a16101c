// Rotations on two API servers, as users and as the controller have them re-encrypted.
import { createHash } from "node:crypto";
import t from "tap";
import { type MigrationCondition, resourceNameOf, type StorageVersionMigration } from "../../src/api/migration.ts";
import { REENCRYPT_ANNOTATION } from "../../src/api/names.ts";
import type { InitResult } from "../../src/initializer/initialize.ts";
import { MIGRATIONS } from "../api-client.ts";
import { IDENTITY, storedWith } from "../control-plane/encryption.ts";
import { balance } from "../integration/balancer.ts";
import { Cluster, eventually } from "../integration/cluster.ts";
import { startController } from "../integration/controller.ts";
import { EncryptedObjects, ENCRYPTED } from "../integration/encrypted-objects.ts";
import { withFewResources } from "../integration/few-resources.ts";
import { grantUser } from "../integration/grant-user.ts";
import { installSystem, untilState } from "../integration/migrations.ts";

const OBJECTS = 20;
const ALL = OBJECTS * 3;
/** API servers can read both at any time: what changes is which one they write with. */
const KEYS = ["key0", "key1"];

function withKeys(index: number, keys: readonly string[]) {
  return withFewResources(keys, { index, resources: ENCRYPTED });
}

const cluster = await Cluster.start(t, {
  apiservers: 2,
  users: [{ name: "blind" }],
  overrides: [withKeys(0, [IDENTITY, ...KEYS]), withKeys(1, [IDENTITY, ...KEYS])],
});
const { api, controlPlane } = cluster;
const [first = "", second = ""] = controlPlane.apiservers.map(({ url }) => url);
const SETTLE = ["--unsafe-settle", "1s"];
const EACH = [...SETTLE, "--apiserver-endpoints", `${first},${second}`];
const objects = await EncryptedObjects.create(cluster, OBJECTS);

function reencrypt(args: readonly string[]) {
  return cluster.ksvm(["reencrypt", ...EACH, ...args]);
}

/** Has API servers write with the first of these keys from now on. */
async function restartWith(keys: readonly string[], indexes = [0, 1]): Promise<void> {
  await Promise.all(indexes.map((index) => controlPlane.restartApiserver(index, withKeys(index, keys))));
}

await t.test("without a look at API servers success is reported, and no object has the new key", async (t) => {
  await restartWith(["key0", "key1", IDENTITY], [0]);
  await grantUser(api, "blind", [{ apiGroups: ["*"], resources: ["*"], verbs: ["*"] }]);
  const isAllowed = async (): Promise<boolean> =>
    (await controlPlane.request("/api/v1/secrets?limit=1", { user: "blind" })).status === 200;
  await eventually(isAllowed, "the role is in force");
  const blind = await reencrypt(["--kubeconfig", controlPlane.kubeconfigFor("blind"), "secrets"]);
  t.match(blind, { code: 1, stderr: /may not get the nonResourceURL "\/metrics".*\[Forbidden\]/ });
  // It writes through the second API server, which is the one that is late.
  const through = ["--kubeconfig", controlPlane.kubeconfigFor("admin", 1), ...objects.names];
  const control = await reencrypt(["--assume-config-rolled-out", ...through]);
  t.equal(control.code, 0, control.stderr);
  t.match(control.stderr, /warning: no API server is asked which encryption configuration it uses/);
  t.same(await objects.keys(), { none: ALL }, "and no object has the new key");
});

await t.test("--expect-config waits for the new configuration where all API servers use the old one", async (t) => {
  const keys = ["key1", "key0", IDENTITY];
  const digest = createHash("sha256").update(withKeys(0, keys).encryptionConfig).digest("hex");
  await restartWith(["key0", "key1", IDENTITY]);
  t.equal((await reencrypt(["secrets"])).code, 0);
  const early = await reencrypt(["secrets"]);
  t.equal(early.code, 0, early.stderr);
  t.match(early.stderr, /note: no object was rewritten:.*--expect-config/, "a hint is all that shows it without");
  // Behind one address, too.
  const { kubeconfig } = await balance(t, controlPlane, [first, second]);
  let rotated: Promise<void> | undefined;
  const onStdout = (text: string): void => {
    if (/waiting .*: it uses encryption configuration/.test(text)) {
      rotated ??= restartWith(keys);
    }
  };
  const args = ["reencrypt", ...SETTLE, "--kubeconfig", kubeconfig, "--expect-config", `sha256:${digest}`];
  const run = await cluster.ksvm([...args, ...objects.names], { onStdout });
  t.ok(rotated !== undefined, "one of them is named");
  await rotated;
  t.equal(run.code, 0, run.stdout + run.stderr);
  t.match(run.stderr, /^warning: --unsafe-settle .*\n$/);
  t.same(await objects.keys(), { [storedWith("key1")]: ALL });
});

await t.test("everything is decrypted", async (t) => {
  await restartWith([IDENTITY, ...KEYS]);
  const run = await reencrypt(objects.names);
  t.equal(run.code, 0, run.stdout + run.stderr);
  t.same(await objects.keys(), { none: ALL });
});

await t.test("an API server that does not tell how it encrypts is named", async (t) => {
  const { extraArgs, hostname } = withKeys(1, KEYS);
  await controlPlane.restartApiserver(1, { extraArgs, hostname });
  const run = await reencrypt(["secrets"]);
  const isNamed = `${second} does not show which encryption configuration it uses`;
  t.match(run, { code: 1, stderr: new RegExp(`${isNamed}.*\\[EncryptionUnknown\\]`) });
});

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
    const after = ["key1", "key0", IDENTITY];
    await restartWith(["key0", "key1", IDENTITY]);
    await installSystem(cluster);
    const digest = `sha256:${createHash("sha256").update(withKeys(0, after).encryptionConfig).digest("hex")}`;
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

    await restartWith(after, [0]);
    await startController(t, cluster, { flags: [`--apiserver-endpoints=${first},${second}`] });
    const secrets = migrations.find(({ spec }) => spec.resource.resource === "secrets");
    const waiting = secrets && (await until(secrets, "Waiting"));
    t.equal(waiting?.reason, "ApiServerMissing");
    t.match(waiting?.message, new RegExp(`${second}: it uses encryption configuration .*${digest} of the`));
    t.notMatch(waiting?.message, /run again|--assume/, "no user is there to do so");

    await restartWith(after, [1]);
    for (const migration of migrations) {
      const message = `every object is encrypted by configuration ${digest}`;
      t.match(await until(migration, "Succeeded"), { reason: "Reencrypted", message });
    }
    t.same(await objects.keys(), { [storedWith("key1")]: ALL });
    t.ok(await objects.areReadable(), "every object reads back as it was");
  },
);
