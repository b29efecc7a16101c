import t from "tap";
import { IDENTITY, storedWith } from "../control-plane/encryption.ts";
import { Cluster } from "./cluster.ts";
import { EncryptedObjects, optionsOf, restartWith } from "./encrypted-objects.ts";

const OBJECTS = 5;
const resources = ["*.*"];
/** What API servers keep in etcd for themselves, which they never encrypt: no key is needed to read it. */
const THEIR_OWN = /^\/registry\/(?:ranges|peerserverleases)\//;

const cluster = await Cluster.start(t, {
  apiservers: 2,
  overrides: [optionsOf(0, [IDENTITY], { resources }), optionsOf(1, [IDENTITY], { resources })],
});
const { controlPlane } = cluster;
const ENDPOINTS = controlPlane.apiservers.map(({ url }) => url).join(",");

/** What etcd has that is not encrypted with the key. */
async function notWith(key: string): Promise<readonly string[]> {
  const entries = await controlPlane.stored.readPrefix("/registry/");
  const left = entries.filter(({ value }) => !value.toString("latin1", 0, 100).startsWith(storedWith(key)));
  return left.map((entry) => entry.key);
}

await t.test("reencrypt --all where everything is encrypted: nothing in etcd needs the old key", async (t) => {
  const objects = await EncryptedObjects.create(cluster, OBJECTS);
  await restartWith(cluster, ["key1", IDENTITY], { resources });
  t.ok((await notWith("key1")).length > 100, "nearly nothing has the key");
  const run = await cluster.ksvm(["reencrypt", "--settle", "1s", "--apiserver-endpoints", ENDPOINTS, "--all"]);
  t.equal(run.code, 0, run.stderr);
  const waits = [...run.stdout.matchAll(/^(\S+): waiting \S+ for in-flight writes/gm)];
  const [first = "", ...others] = new Set(waits.map(([, name = ""]) => name));
  t.ok(first, "late writes are waited for, although no API server joined or left for as long as it is watched,");
  t.ok(others.includes(objects.kind.name), "and once more for the custom resource, whose CRD has just been created");
  // One that was slow to answer is told of by name.
  const isExplained = (name: string): boolean => run.stdout.includes(`${name}: waiting for https://`);
  t.same(
    others.filter((name) => name !== objects.kind.name && !isExplained(name)),
    [],
    "and for no other one",
  );
  t.same(
    (await notWith("key1")).filter((key) => !THEIR_OWN.test(key)),
    [],
    "every object has the new key",
  );
  await restartWith(cluster, ["key1"], { resources });
  t.ok(await objects.areReadable(), "API servers start, and read everything, without the old key");
});
