import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import t from "tap";
import { MERGE_PATCH } from "../../src/kube/resources.ts";
import { KMS_SOCKET, kmsV1Config, storedWith } from "../control-plane/encryption.ts";
import type { StoredObject } from "../control-plane/stored-value.ts";
import { KmsV1Plugin } from "../kms-plugin/kms-v1-plugin.ts";
import { Cluster } from "./cluster.ts";
import { EncryptedObjects, optionsOf } from "./encrypted-objects.ts";

const OBJECTS = 6;
const PROVIDER = "vault";
const PREFIX = `k8s:enc:kms:v1:${PROVIDER}`;
const CANNOT_KNOW = /Cannot tell which key "secrets" has: a KMS v1 plugin shows its key nowhere.*\[EncryptionUnknown\]/;

const dir = mkdtempSync(join(tmpdir(), "ksvm-kms-"));
const plugin = await KmsV1Plugin.start(join(dir, KMS_SOCKET), "key1");
// Torn down after the control plane, which is started later.
t.teardown(() => {
  plugin.stop();
  rmSync(dir, { recursive: true });
});

const cluster = await Cluster.start(t, { overrides: [withPlugin()] });
const objects = await EncryptedObjects.create(cluster, OBJECTS);

/** @param key encrypts in the place of the plugin */
function withPlugin(key?: string) {
  const encryptionConfig = kmsV1Config(PROVIDER, ["secrets"], key);
  return { ...optionsOf(0, []), encryptionConfig, cwd: dir, featureGates: { KMSv1: true } };
}

/** The counters of an API server begin at its start. */
function restart(key?: string): Promise<void> {
  return cluster.controlPlane.restartApiserver(0, withPlugin(key));
}

/** As a user calls it. */
function ksvm(...args: readonly string[]) {
  return cluster.ksvm([...args, "--settle", "1s"]);
}

/** The Secrets as etcd has them. */
async function secrets(): Promise<readonly StoredObject[]> {
  return (await objects.stored()).filter(({ encryptedWith }) => encryptedWith !== undefined);
}

/** How many of them the plugin encrypted with this key. */
async function countOf(key: string): Promise<number> {
  return (await secrets()).filter(({ raw }) => raw.includes(`:${key}:`) || raw.includes(`${key}:`)).length;
}

await t.test("reencrypt says that it cannot know where the key of a KMS v1 plugin rotated within it", async (t) => {
  t.same((await objects.keysOfEach()).get("secrets"), { [PREFIX]: OBJECTS });
  plugin.keys.rotate("key2");
  await restart();
  const before = await secrets();
  const blind = await ksvm("reencrypt", "--assume-config-rolled-out", "secrets");
  t.equal(blind.code, 0, "negative control: without the evidence it reports success");
  t.same(await secrets(), before, "and every object keeps the old key: the API server finds none of them stale");
  t.equal(await countOf("key1"), OBJECTS);

  await restart();
  const run = await ksvm("reencrypt", "secrets");
  t.equal(run.code, 1, run.stdout);
  t.match(run.stderr, CANNOT_KNOW);
  t.equal(run.stderr.trimEnd().split("\n").length, 1, "one line");
  t.notMatch(run.stdout, /re-encrypted/);
});

await t.test("reencrypt refuses before its first write where an API server has encrypted by KMS v1", async (t) => {
  await cluster.api.patch(
    { group: "", version: "v1", resource: "secrets" },
    { name: "o0", namespace: objects.namespace },
    { type: MERGE_PATCH, body: { metadata: { labels: { a: "b" } } } },
  );
  t.equal(await countOf("key2"), 1);
  const before = await secrets();
  const run = await ksvm("reencrypt", "secrets");
  t.equal(run.code, 1, run.stdout);
  t.match(run.stderr, CANNOT_KNOW);
  t.notMatch(run.stdout, /every API server shows/, "at its first look");
  t.same(await secrets(), before);
});

await t.test("reencrypt works on what no KMS v1 plugin encrypts", async (t) => {
  const run = await ksvm("reencrypt", "configmaps");
  t.equal(run.code, 0, run.stdout + run.stderr);
});

await t.test("reencrypt goes over from a KMS v1 plugin to a key that API servers show, with evidence", async (t) => {
  await restart("key3");
  for (const what of ["what the plugin had encrypted", "again, nothing is left to do"]) {
    const run = await ksvm("reencrypt", "secrets");
    t.equal(run.code, 0, what + run.stdout + run.stderr);
    t.same((await objects.keysOfEach()).get("secrets"), { [storedWith("key3")]: OBJECTS });
  }
});
