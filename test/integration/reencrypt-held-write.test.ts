import { setTimeout as delay } from "node:timers/promises";
import t, { type Test } from "tap";
import { storedWith } from "../control-plane/encryption.ts";
import { Cluster, eventually } from "./cluster.ts";
import { EncryptedObjects, optionsOf, replaceConfig, shownConfig } from "./encrypted-objects.ts";
import { holdableEtcd } from "./held-etcd.ts";

const [FIRST, SECOND] = [0, 1];
const KEYS = ["key0", "key1", "key2"];

const cluster = await Cluster.start(t, { overrides: [optionsOf(FIRST, KEYS, { reloads: true })] });
const { controlPlane } = cluster;
const etcd = await holdableEtcd(t, controlPlane.etcd.url);
const second = { ...optionsOf(SECOND, KEYS, { reloads: true }), etcdUrl: etcd.url };
await controlPlane.addApiserver(second);
const ENDPOINTS = controlPlane.apiservers.map(({ url }) => url).join(",");
const objects = await EncryptedObjects.create(cluster, 3);

interface HeldWrite {
  readonly created: Promise<number>;
  /** The keys that it was encrypted with when it was created, and is now. */
  keys(): Promise<readonly [first: string | undefined, now: string | undefined]>;
}

/** An API server looks at its configuration so often, in milliseconds. */
const LOOKS_EVERY_MS = 60_000;
/** It ends a write after 34 s: so a write is sent so long before it looks, in milliseconds. */
const AHEAD_MS = 10_000;
const TRIES = 3;

/** When the second API server last read another configuration, by the clock of this machine. */
let lookedAt = await reload(SECOND, ["key0", "key2", "key1"]);

async function reload(index: number, keys: readonly string[]): Promise<number> {
  const before = await shownConfig(cluster, index);
  replaceConfig(cluster, index, keys);
  const isRead = async (): Promise<boolean> => (await shownConfig(cluster, index)) !== before;
  await eventually(isRead, "it uses the other configuration", 180_000, 500);
  return performance.now();
}

/** Sends a write through the second API server, which is encrypted and held when both API servers use another key. */
async function holdWrite(name: string, keys: readonly string[]): Promise<HeldWrite> {
  const namespace = objects.kind.plural;
  await reload(FIRST, keys);
  const looks = Math.ceil((performance.now() + AHEAD_MS - lookedAt) / LOOKS_EVERY_MS);
  await delay(lookedAt + looks * LOOKS_EVERY_MS - AHEAD_MS - performance.now());
  etcd.hold();
  const body = { apiVersion: "v1", kind: "Secret", metadata: { name, namespace }, stringData: { of: name } };
  const request = { method: "POST", body, apiserver: SECOND, timeoutMs: 300_000 } as const;
  const created = controlPlane.request(`/api/v1/namespaces/${namespace}/secrets`, request).then(({ status }) => status);
  lookedAt = await reload(SECOND, keys);
  const key = `/registry/secrets/${namespace}/${name}`;
  const keyAt = async (revision?: number): Promise<string | undefined> => {
    const [object] = await controlPlane.stored.objectsUnder(key, revision === undefined ? {} : { revision });
    return object?.encryptedWith;
  };
  return {
    created,
    keys: async () => {
      const entry = await controlPlane.stored.readKey(key);
      return [await keyAt(entry?.createRevision), await keyAt()];
    },
  };
}

/**
 * Rewrites while a write is held that was encrypted with the former key. Where the API server ended the write, as on a busy
 * machine, that shows nothing, and another one is held.
 * @param letGoOn what ksvm says when the write is let go. @default it is once ksvm is done
 */
async function reencryptBesideWrite(t: Test, settle: string, letGoOn?: RegExp) {
  for (let tries = 0; tries < TRIES; tries++) {
    const [now = "", ...others] = inUse;
    inUse = [...others, now];
    const write = await holdWrite(`write${others[0]}${tries}`, inUse);
    const flags = ["--settle", settle, "--apiserver-endpoints", ENDPOINTS];
    const onStdout = (text: string): void => void (letGoOn?.test(text) === true && etcd.letGo());
    const run = await cluster.ksvm(["reencrypt", ...flags, "secrets"], { onStdout });
    etcd.letGo();
    t.equal(run.code, 0, run.stdout + run.stderr);
    if ((await write.created) === 201) {
      return { keys: await write.keys(), before: storedWith(now), after: storedWith(others[0] ?? "") };
    }
  }
  throw new Error("Cannot hold a write for as long as an API server takes to read its configuration");
}

/** The keys in their order, the one that is written with first. */
let inUse: readonly string[] = KEYS;

await t.test("reencrypt waits for a write that was encrypted before its API server read the new key", async (t) => {
  const { after, before, keys } = await reencryptBesideWrite(t, "15s", /in-flight writes/);
  t.same(keys, [before, after], "it landed with the old key, and has the new one");
});

await t.test("negative control: with a settle time that is shorter than a write, it keeps the old key", async (t) => {
  const { before, keys } = await reencryptBesideWrite(t, "0s");
  t.same(keys, [before, before]);
});
