import t from "tap";
import { FORCE_ANNOTATION } from "../../src/api/names.ts";
import { encryptionConfig, storedWith } from "../control-plane/encryption.ts";
import { assertNoTraces } from "./assert-no-traces.ts";
import { Cluster, eventually } from "./cluster.ts";
import { createMigration, installSystem, startController, untilState } from "./controller-fixture.ts";
import { GROUP, TestKind } from "./crd-fixture.ts";
import { rejectUpdatesOf } from "./reject-updates.ts";

const OBJECTS = 60;
/** A run of several seconds and many pages. */
const SLOWLY = ["--max-qps", "15", "--page-size", "10"];
const SECRETS = { group: "", version: "v1", resource: "secrets" };

/** Keys in the order in which they were added; each test adds its own. */
const keys = ["key0"];
const cluster = await Cluster.start(t, { encryptionConfig: encryptionConfig(keys) });
const { api, controlPlane } = cluster;
await installSystem(cluster);
const [apiserver] = controlPlane.apiservers;
if (apiserver === undefined) {
  throw new Error("an API server was asked for");
}
// A restart makes the identity Lease a new one, which voids every checkpoint by itself. Where API servers read a changed
// EncryptionConfiguration without a restart nothing shows it, and so it is here, where the Leases are not looked at.
const apiserverEndpoints = [apiserver.url];
const FORCE = ["--force", "--apiserver-endpoints", apiserver.url];

/** Adds a key, which the API server encrypts with from now on. */
async function rotate(): Promise<string> {
  const key = `key${keys.length}`;
  keys.push(key);
  await restart(keys.toReversed());
  return key;
}

/** Removes every key but the newest: what is not encrypted with it can be read no more. */
async function removeOldKeys(): Promise<void> {
  await restart(keys.slice(-1));
}

/** Every other object must have been written with the newest key by then, as the Secrets of the system are. */
async function restart(inOrder: readonly string[]): Promise<void> {
  await controlPlane.restartApiserver(0, { encryptionConfig: encryptionConfig(inOrder) });
}

/** How many objects etcd holds with each key. */
async function keysOf(prefix: string): Promise<Record<string, number>> {
  const counts: Record<string, number> = {};
  for (const { encryptedWith = "none" } of await controlPlane.stored.objectsUnder(prefix)) {
    counts[encryptedWith] = (counts[encryptedWith] ?? 0) + 1;
  }
  return counts;
}

function prefixOf({ plural }: TestKind): string {
  return `/registry/${GROUP}/${plural}/`;
}

/** A clean CRD whose objects were written with the newest key. */
async function createClean(word: string): Promise<TestKind> {
  const kind = new TestKind(word);
  await cluster.createCrd(kind, { storage: "v1" });
  await cluster.createObjects(kind.resource("v1"), kind.objects(OBJECTS, "v1"));
  return kind;
}

async function readAll(kind: TestKind): Promise<number> {
  await cluster.waitForVersion(kind, "v1");
  return (await api.list(kind.resource("v1"))).length;
}

await t.test(
  "--force after a forced run that left one object behind, and another key rotation, rewrites every object",
  async (t) => {
    const kind = await createClean("left");
    const second = await rotate();
    await cluster.waitForVersion(kind, "v1");
    const allow = await rejectUpdatesOf(cluster, kind, "w7");
    const first = await cluster.migrate([...FORCE, kind.name]);
    t.equal(first.code, 3, first.stderr);
    t.equal((await keysOf(prefixOf(kind)))[storedWith(second)], OBJECTS - 1, "all but one have the second key");

    await allow();
    const third = await rotate();
    await cluster.waitForVersion(kind, "v1");
    const again = await cluster.migrate([...FORCE, kind.name]);
    t.equal(again.code, 0, again.stderr);
    t.notMatch(again.stdout, /resuming/);
    t.match(again.stdout, new RegExp(`${OBJECTS} rewritten`));
    t.same(await keysOf(prefixOf(kind)), { [storedWith(third)]: OBJECTS });
    await removeOldKeys();
    t.equal(await readAll(kind), OBJECTS, "every object can be read without the old keys");
    await assertNoTraces(t, cluster, kind);
  },
);

await t.test(
  "kill -9 of a forced run, a key rotation, and a second forced run: nothing needs the old key",
  async (t) => {
    const kind = await createClean("killed");
    const second = await rotate();
    await cluster.waitForVersion(kind, "v1");
    const run = cluster.spawnKsvm(t, ["migrate", "--settle", "1s", ...FORCE, ...SLOWLY, kind.name]);
    await eventually(
      async () => ((await keysOf(prefixOf(kind)))[storedWith(second)] ?? 0) > 25,
      "some objects have the second key",
    );
    run.signal("SIGKILL");
    await run.ended;
    t.ok(((await keysOf(prefixOf(kind)))[storedWith(second)] ?? 0) < OBJECTS, "it was in the middle");

    const third = await rotate();
    await cluster.waitForVersion(kind, "v1");
    const again = await cluster.migrate([...FORCE, kind.name]);
    t.equal(again.code, 0, again.stderr);
    t.notMatch(again.stdout, /resuming/);
    t.same(await keysOf(prefixOf(kind)), { [storedWith(third)]: OBJECTS });
    await removeOldKeys();
    t.equal(await readAll(kind), OBJECTS);
  },
);

await t.test("kill -9 of a run on Secrets, a key rotation, and a second run: nothing needs the old key", async (t) => {
  const secrets = Array.from({ length: OBJECTS }, (_, index) => ({
    apiVersion: "v1",
    kind: "Secret",
    metadata: { name: `secret${index}`, namespace: "default" },
    stringData: { password: `number ${index}` },
  }));
  await cluster.createObjects(SECRETS, secrets);
  const prefix = "/registry/secrets/default/";
  const second = await rotate();
  const run = cluster.spawnKsvm(t, ["migrate", "--settle", "1s", ...SLOWLY, "secrets"]);
  await eventually(async () => ((await keysOf(prefix))[storedWith(second)] ?? 0) > 25, "some have the second key");
  run.signal("SIGKILL");
  await run.ended;
  t.ok(((await keysOf(prefix))[storedWith(second)] ?? 0) < OBJECTS, "it was in the middle");

  const third = await rotate();
  const again = await cluster.migrate(["secrets"]);
  t.equal(again.code, 0, again.stderr);
  t.same(await keysOf(prefix), { [storedWith(third)]: OBJECTS });
  await removeOldKeys();
  const read = await api.list<{ data: { password: string }; metadata: { name: string } }>(SECRETS, {
    namespace: "default",
  });
  const passwords = read.map(({ data }) => Buffer.from(data.password, "base64").toString());
  t.same(new Set(passwords), new Set(secrets.map(({ stringData }) => stringData.password)), "with what was in them");
});

await t.test("a forced StorageVersionMigration resumes nothing of an earlier one that failed", async (t) => {
  const kind = await createClean("controlled");
  const second = await rotate();
  await cluster.waitForVersion(kind, "v1");
  startController(t, cluster, { guard: "policy", apiserverEndpoints });
  const allow = await rejectUpdatesOf(cluster, kind, "w7");
  const failed = await createMigration(cluster, kind, { [FORCE_ANNOTATION]: "true" });
  await untilState(cluster, failed, ["Failed"]);
  t.equal((await keysOf(prefixOf(kind)))[storedWith(second)], OBJECTS - 1, "all but one have the second key");

  await allow();
  const third = await rotate();
  await cluster.waitForVersion(kind, "v1");
  const forced = await createMigration(cluster, kind, { [FORCE_ANNOTATION]: "true" });
  await untilState(cluster, forced, ["Succeeded"]);
  t.same(await keysOf(prefixOf(kind)), { [storedWith(third)]: OBJECTS });
});
