// `ksvm reencrypt --all`: what the encryption configuration names, and everything in etcd.
import { createHash } from "node:crypto";
import t from "tap";
import { storedWith } from "../control-plane/encryption.ts";
import { Cluster } from "../integration/cluster.ts";
import { EncryptedObjects } from "../integration/encrypted-objects.ts";
import { withFewResources } from "../integration/few-resources.ts";

const EVERYTHING = ["*.*"];
/** What API servers keep in etcd for themselves, which they never encrypt: no key is needed to read it. */
const THEIR_OWN = /^\/registry\/(?:ranges|peerserverleases)\//;
const rotated = withFewResources(["key1", "key0"], { resources: EVERYTHING });

const cluster = await Cluster.start(t, {
  overrides: [withFewResources(["key0", "key1"], { resources: EVERYTHING })],
});
const { controlPlane } = cluster;

await t.test("--all leaves nothing in etcd that has the old key", async (t) => {
  const objects = await EncryptedObjects.create(cluster, 10);
  await controlPlane.restartApiserver(0, rotated);
  const notRewritten = async (): Promise<readonly string[]> => {
    const entries = await controlPlane.stored.readPrefix("/registry/");
    const left = entries.filter(({ value }) => !value.toString("latin1", 0, 100).startsWith(storedWith("key1")));
    return left.map((entry) => entry.key).filter((name) => !THEIR_OWN.test(name));
  };
  t.ok((await notRewritten()).length > 50, "most of it has");
  const digest = createHash("sha256").update(rotated.encryptionConfig).digest("hex");
  const run = await cluster.ksvm([
    "reencrypt",
    "--all",
    "--unsafe-settle",
    "1s",
    "--expect-config",
    digest,
    "-o",
    "json",
  ]);
  t.equal(run.code, 0, run.stdout + run.stderr);
  t.same(await notRewritten(), []);
  const last = JSON.parse(run.stdout.trimEnd().split("\n").at(-1) ?? "") as object;
  t.match(last, { type: "summary", notDone: [], encryption: `sha256:${digest}` });
  t.ok(await objects.areReadable(), "every object reads back as it was");
});
