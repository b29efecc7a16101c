import { mkdirSync, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import t from "tap";
import { Interruption } from "../../src/cli/shared/interruption.ts";
import { kmsConfig, KMS_SOCKET, storedWithKms } from "../control-plane/encryption.ts";
import { KmsPlugin } from "../kms-plugin/kms-plugin.ts";
import { balance } from "../integration/balancer.ts";
import { Cluster, eventually } from "../integration/cluster.ts";
import { ENCRYPTED, EncryptedObjects, optionsOf } from "../integration/encrypted-objects.ts";

const OBJECTS = 10;
const ALL = OBJECTS * 3;
const PROVIDER = "vault";
const [FIRST, SECOND] = [0, 1];

const dir = mkdtempSync(join(tmpdir(), "ksvm-kms-"));
const folders = ["first", "second"].map((name) => join(dir, name));
const plugins = await Promise.all(folders.map((folder) => startPlugin(folder)));
const [firstPlugin, secondPlugin] = plugins as [KmsPlugin, KmsPlugin];
// Torn down after the control plane, which is started later.
t.teardown(() => {
  for (const plugin of plugins) plugin.stop();
  rmSync(dir, { recursive: true });
});

const cluster = await Cluster.start(t, { apiservers: 2, overrides: [withPlugin(FIRST), withPlugin(SECOND)] });
const { controlPlane } = cluster;
const [first = "", second = ""] = controlPlane.apiservers.map(({ url }) => url);
const objects = await EncryptedObjects.create(cluster, OBJECTS);
const SETTLE = ["--unsafe-settle", "1s"];
const REENCRYPT = ["reencrypt", ...SETTLE, "--apiserver-endpoints", `${first},${second}`, ...objects.names];
const THROUGH_SECOND = ["--kubeconfig", controlPlane.kubeconfigFor("admin", SECOND)];

async function startPlugin(folder: string): Promise<KmsPlugin> {
  mkdirSync(folder);
  return await KmsPlugin.start(join(folder, KMS_SOCKET), "key1");
}

/** The API servers have one and the same configuration, and a plugin each. */
function withPlugin(index: number) {
  return { ...optionsOf(index, []), encryptionConfig: kmsConfig(PROVIDER, ENCRYPTED), cwd: folders[index] ?? "" };
}

/** The digests of all key ids that an API server was ever told by its plugin. */
async function shownKeys(index: number): Promise<ReadonlySet<string>> {
  const { body } = await controlPlane.request("/metrics", { apiserver: index });
  const series = String(body).matchAll(/key_id_hash_status_last_timestamp_seconds\{.*key_id_hash="([^"]+)"/g);
  return new Set([...series].map(([, hash = ""]) => hash));
}

const UNHEALTHY = /its \/healthz does not say that its KMS plugins encrypt with the keys that they name/;

/** Runs a command until it says that it waits for the health of an API server. It would wait for long. */
function whileWaiting(args: readonly string[]) {
  const stop = new AbortController();
  const onStdout = (text: string): void => {
    if (UNHEALTHY.test(text)) stop.abort(new Interruption("SIGINT"));
  };
  return cluster.ksvm(args, { signal: stop.signal, onStdout });
}

/** Right after an API server asked for the key id, it does not ask again for a minute. */
async function untilAsked(plugin: KmsPlugin): Promise<void> {
  const before = plugin.statusCalls;
  await eventually(async () => plugin.statusCalls > before, "an API server asks for the key id");
}

await t.test("objects have the key of the plugin from the beginning", async (t) => {
  t.same(await objects.keys(), { [storedWithKms(PROVIDER, "key1")]: ALL });
  t.ok(await objects.areReadable());
});

await t.test("reencrypt waits for the API server whose KMS plugin rotates its key later, and names it", async (t) => {
  await untilAsked(secondPlugin);
  firstPlugin.keys.rotate("key2");
  secondPlugin.keys.rotate("key2");
  const control = await cluster.ksvm([...REENCRYPT, ...THROUGH_SECOND, "--assume-config-rolled-out"]);
  t.equal(control.code, 0, "negative control: right after the rotation and without the evidence it reports success");
  t.same(await objects.keys(), { [storedWithKms(PROVIDER, "key1")]: ALL }, "and every object keeps the old key");

  // As where the plugin of the second API server was not told of the rotation yet.
  secondPlugin.keys.rotate("key1");
  await eventually(async () => (await shownKeys(FIRST)).size === 2, "the first API server shows the new key");
  const isDifferent = new RegExp(`${second} .*with key sha256:\\S+ of KMS plugin "${PROVIDER}"`);
  let isNamed = false;
  const run = await cluster.ksvm([...REENCRYPT, ...THROUGH_SECOND], {
    onStdout: (text) => {
      if (!isNamed && isDifferent.test(text)) {
        isNamed = true;
        secondPlugin.keys.rotate("key2");
      }
    },
  });
  t.ok(isNamed, `it names the API server, its plugin and the key:\n${run.stdout}`);
  t.equal(run.code, 0, run.stdout + run.stderr);
  t.same(await objects.keys(), { [storedWithKms(PROVIDER, "key2")]: ALL }, "etcd shows the new key id of each object");
});

await t.test("after that no object needs the old key", async (t) => {
  for (const plugin of plugins) plugin.keys.remove("key1");
  await Promise.all([FIRST, SECOND].map((index) => controlPlane.restartApiserver(index, withPlugin(index))));
  t.ok(await objects.areReadable(), "every object reads back equal");
  t.ok(firstPlugin.decryptions > 0, "and its plugin decrypted what it was encrypted with");
});

await t.test("reencrypt believes no key that a plugin names and cannot encrypt with", async (t) => {
  for (const plugin of plugins) {
    plugin.refusesToEncrypt = true;
    plugin.keys.rotate("key3");
  }
  const before = await Promise.all([FIRST, SECOND].map((index) => shownKeys(index)));
  await eventually(
    async () =>
      (await shownKeys(FIRST)).size > (before[0]?.size ?? 0) && (await shownKeys(SECOND)).size > (before[1]?.size ?? 0),
    "both API servers show the new key",
    90_000,
  );
  const control = await cluster.ksvm([...REENCRYPT, ...THROUGH_SECOND, "--assume-config-rolled-out"]);
  t.equal(control.code, 0, "negative control: without the evidence it reports success");
  t.same(await objects.keys(), { [storedWithKms(PROVIDER, "key2")]: ALL }, "and every object keeps the key before");
  t.match(await whileWaiting([...REENCRYPT, ...THROUGH_SECOND]), { code: 130, stdout: UNHEALTHY });
});

await t.test("reencrypt behind one address believes the health of no other API server", async (t) => {
  firstPlugin.refusesToEncrypt = false;
  const isHealthy = async (index: number): Promise<boolean> =>
    (await controlPlane.request("/healthz", { apiserver: index })).status === 200;
  await eventually(async () => isHealthy(FIRST), "the first API server encrypts with the new key", 90_000);
  t.notOk(await isHealthy(SECOND));
  const { kubeconfig } = await balance(t, controlPlane, [first, second]);
  const args = ["reencrypt", ...SETTLE, "--kubeconfig", kubeconfig, ...objects.names];
  t.match(await whileWaiting(args), { code: 130, stdout: UNHEALTHY });
  t.same(await objects.keys(), { [storedWithKms(PROVIDER, "key2")]: ALL });
});
