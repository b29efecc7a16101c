import { writeFileSync } from "node:fs";
import { join } from "node:path";
import t from "tap";
import { encryptionConfig, storedWith } from "../control-plane/encryption.ts";
import { Cluster, eventually } from "../integration/cluster.ts";
import { ENCRYPTED, EncryptedObjects, optionsOf } from "../integration/encrypted-objects.ts";

// What takes minutes: an API server that looks at its configuration once a minute, and Secrets of 1 MB.

const OBJECTS = 30;
const SECRETS = { group: "", version: "v1", resource: "secrets" };
/** The API server takes Secrets with up to 1 MiB of data, and 256 KiB of annotations. */
const [DATA_BYTES, ANNOTATION_BYTES] = [700_000, 240_000];
const LARGE = 40;

const apiserver = {
  ...optionsOf(0, ["key0", "key1", "key2"]),
  extraArgs: ["--encryption-provider-config-automatic-reload=true"],
};
const cluster = await Cluster.start(t, { overrides: [apiserver] });
const { api, controlPlane } = cluster;

/** The digest of the configuration that the API server shows. */
async function shownConfig(): Promise<string> {
  const { body } = await controlPlane.request("/metrics");
  return /last_config_info\{.*[{,]hash="([^"]+)"/.exec(String(body))?.[1] ?? "";
}

/** Replaces the configuration, and waits until it is used: the API server is not restarted for that. */
async function reload(keys: readonly string[]): Promise<void> {
  const before = await shownConfig();
  writeFileSync(join(controlPlane.dir, "encryption-0.yaml"), encryptionConfig(keys, ENCRYPTED));
  await eventually(async () => (await shownConfig()) !== before, "it uses the new configuration", 180_000, 1_000);
}

await t.test("Secrets of 1 MB are rewritten", async (t) => {
  const namespace = "large";
  await api.create(
    { group: "", version: "v1", resource: "namespaces" },
    { apiVersion: "v1", kind: "Namespace", metadata: { name: namespace } },
  );
  const text = "x".repeat(DATA_BYTES);
  const annotations = { note: "y".repeat(ANNOTATION_BYTES) };
  const secrets = Array.from({ length: LARGE }, (_, index) => ({
    apiVersion: "v1",
    kind: "Secret",
    metadata: { name: `s${index}`, namespace, annotations },
    stringData: { text },
  }));
  await cluster.createObjects(SECRETS, secrets);
  await reload(["key1", "key0", "key2"]);
  const run = await cluster.ksvm(["reencrypt", "secrets", "--unsafe-settle", "1s"]);
  t.equal(run.code, 0, run.stderr);
  const stored = await controlPlane.stored.objectsUnder(`/registry/secrets/${namespace}/`);
  t.same(new Set(stored.map(({ encryptedWith }) => encryptedWith)), new Set([storedWith("key1")]));
  const read = await api.list<{ data: { text?: string } }>(SECRETS, { namespace });
  const expected = Buffer.from(text).toString("base64");
  t.ok(read.length === LARGE && read.every(({ data }) => data.text === expected), "every Secret reads back equal");
});

await t.test("a rotation without a restart in the midst of a run has everything rewritten once more", async (t) => {
  const objects = await EncryptedObjects.create(cluster, OBJECTS);
  const { name } = objects.kind;
  await reload(["key2", "key1", "key0"]);
  const flags = ["--unsafe-settle", "1s", "--max-qps", "20"];
  const run = cluster.spawnKsvm(t, ["reencrypt", ...flags, ...objects.names]);
  const isLast = async (): Promise<boolean> => ((await objects.keysOfEach()).get(name)?.[storedWith("key2")] ?? 0) > 5;
  await eventually(isLast, "it rewrites the last of the resources");
  run.pause();
  await reload(["key0", "key1", "key2"]);
  run.resume();
  const { code, stderr, stdout } = await run.ended;
  t.equal(code, 0, stdout + stderr);
  t.match(stdout, new RegExp(`${name}: beginning again: `));
  t.match(stdout, /every resource: since then .*changed its encryption: again secrets, configmaps/);
  t.same(await objects.keys(), { [storedWith("key0")]: OBJECTS * 3 });
});
