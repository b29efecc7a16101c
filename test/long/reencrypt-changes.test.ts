import t from "tap";
import { storedWith } from "../control-plane/encryption.ts";
import { Cluster, eventually } from "../integration/cluster.ts";
import { EncryptedObjects, optionsOf } from "../integration/encrypted-objects.ts";

// What changes in the midst of a run. All keys are known to API servers at any time: what changes is which one they write with.

const OBJECTS = 20;
const ALL = OBJECTS * 3;
const KEYS = ["key0", "key1", "key2", "key3", "key4"];

const cluster = await Cluster.start(t, { apiservers: 2, overrides: [optionsOf(0, KEYS), optionsOf(1, KEYS)] });
const { controlPlane } = cluster;
const [first = "", second = ""] = controlPlane.apiservers.map(({ url }) => url);
const EACH = ["--unsafe-settle", "1s", "--apiserver-endpoints", `${first},${second}`];
const objects = await EncryptedObjects.create(cluster, OBJECTS);

/** The keys in the order in which they are tried; the first one encrypts. */
function beginningWith(key: string): readonly string[] {
  return [key, ...KEYS.filter((other) => other !== key)];
}

/** Has API servers write with a key from now on. */
async function use(key: string, indexes: readonly number[] = [0, 1]): Promise<void> {
  const options = (index: number) => optionsOf(index, beginningWith(key));
  await Promise.all(indexes.map((index) => controlPlane.restartApiserver(index, options(index))));
}

async function countWith(resource: string, key: string): Promise<number> {
  return (await objects.keysOfEach()).get(resource)?.[storedWith(key)] ?? 0;
}

await t.test(
  "a run that was killed begins again, and another rotation in its midst has everything rewritten",
  async (t) => {
    const { name } = objects.kind;
    await use("key1");
    const killed = cluster.spawnKsvm(t, ["reencrypt", ...EACH, "--max-qps", "5", "secrets"]);
    await eventually(async () => (await countWith("secrets", "key1")) > 5, "it is in the middle");
    await killed.kill();
    t.ok((await countWith("secrets", "key1")) < OBJECTS, "it was not done");

    const run = cluster.spawnKsvm(t, ["reencrypt", ...EACH, "--max-qps", "20", ...objects.names]);
    await eventually(async () => (await countWith(name, "key1")) > 2, "it rewrites the last of the resources");
    run.pause();
    await use("key2");
    run.resume();
    const { code, stderr, stdout } = await run.ended;
    t.equal(code, 0, stdout + stderr);
    t.match(stdout, new RegExp(`${name}: beginning again: `));
    t.match(stdout, /every resource: since then .*changed its encryption: again secrets, configmaps/);
    t.same(await objects.keys(), { [storedWith("key2")]: ALL });
  },
);

await t.test("migrate --force resumes nothing of a forced run that was killed before another rotation", async (t) => {
  const { name } = objects.kind;
  await use("key3", [0]);
  await cluster.waitForVersion(objects.kind, "v1");
  // The identity Leases tell of a restart; a configuration that is read without one shows nowhere. So they are not looked at.
  const args = ["--force", "--apiserver-endpoints", first];
  const run = cluster.spawnKsvm(t, ["migrate", "--unsafe-settle", "1s", ...args, "--max-qps", "10", name]);
  await eventually(async () => (await countWith(name, "key3")) > 5, "it is in the middle");
  await run.kill();
  t.ok((await countWith(name, "key3")) < OBJECTS, "it was not done");
  await use("key4", [0]);
  await cluster.waitForVersion(objects.kind, "v1");
  const again = await cluster.migrate([...args, name]);
  t.equal(again.code, 0, again.stdout + again.stderr);
  t.equal(await countWith(name, "key4"), OBJECTS);
});
