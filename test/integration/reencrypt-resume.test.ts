import t, { type Test } from "tap";
import type { Lease } from "../../src/api/lease.ts";
import type { NewObject } from "../../src/kube/client.ts";
import { LEASES, MERGE_PATCH } from "../../src/kube/resources.ts";
import { leaseNameOf } from "../../src/lease/lease-acquire.ts";
import { DEFAULT_LEASE_NAMESPACE } from "../../src/lease/run-lease-ref.ts";
import { CHECKPOINT_ANNOTATION } from "../../src/lease/run-lease.ts";
import { formatKept, parseKept } from "../../src/migrator/kept-checkpoint.ts";
import { storedWith } from "../control-plane/encryption.ts";
import { Cluster, eventually } from "./cluster.ts";
import { EncryptedObjects, optionsOf, restartWith } from "./encrypted-objects.ts";

const OBJECTS = 40;
/** Of the others no key is needed, whatever becomes of the keys. */
const RESOURCES = { resources: ["secrets"] };
const SECRETS = { group: "", version: "v1", resource: "secrets" };

const cluster = await Cluster.start(t, {
  apiservers: 2,
  overrides: [optionsOf(0, ["key0"], RESOURCES), optionsOf(1, ["key0"], RESOURCES)],
});
const { controlPlane } = cluster;
const ENDPOINTS = controlPlane.apiservers.map(({ url }) => url).join(",");
const objects = await EncryptedObjects.create(cluster, OBJECTS);
const REENCRYPT = ["reencrypt", "--settle", "1s", "--apiserver-endpoints", ENDPOINTS, "-o", "json", "secrets"];

async function secretsWith(key: string): Promise<number> {
  return (await objects.keysOfEach()).get("secrets")?.[storedWith(key)] ?? 0;
}

/** Runs until pages were done, and kills it. @returns how many objects it had rewritten */
async function killed(t: Test, key: string): Promise<number> {
  const run = cluster.spawnKsvm(t, [...REENCRYPT, "--max-qps", "5", "--page-size", "5"]);
  await eventually(async () => (await secretsWith(key)) > 12, "it is in the middle");
  run.signal("SIGKILL");
  await run.ended;
  const written = await secretsWith(key);
  t.ok(written < OBJECTS, "it was not done");
  return written;
}

interface Line {
  readonly type: string;
  readonly reason?: string;
  readonly counts?: { readonly current: number; readonly migrated: number; readonly newer: number };
}

/** Runs it to its end. */
async function rerun(t: Test, flags: readonly string[] = ["--resume"]) {
  const { code, stderr, stdout } = await cluster.ksvm([...REENCRYPT, ...flags]);
  t.equal(code, 0, stdout + stderr);
  const lines = stdout
    .trimEnd()
    .split("\n")
    .map((line) => JSON.parse(line) as Line);
  const isResumed = lines.some(({ type }) => type === "resumed");
  const reasons = lines.filter(({ type }) => type === "startingAgain").map(({ reason }) => reason);
  return { isResumed, reasons, counts: lines.findLast(({ type }) => type === "result")?.counts, stdout };
}

await t.test("reencrypt --resume after kill -9 goes on where it stood, if nothing changed since", async (t) => {
  await restartWith(cluster, ["key1", "key0"], RESOURCES);
  const written = await killed(t, "key1");
  const { counts, isResumed, stdout } = await rerun(t);
  t.ok(isResumed, stdout);
  t.equal(counts?.current, 0, "no object was sent again that the killed run had done");
  t.ok((counts?.newer ?? 0) >= 10, "pages of it were believed");
  t.ok((counts?.migrated ?? 0) >= OBJECTS - written);
  t.equal(await secretsWith("key1"), OBJECTS);
});

await t.test(
  "reencrypt --resume after kill -9 begins at the first object where an API server came and went in between",
  async (t) => {
    await restartWith(cluster, ["key2", "key1", "key0"], RESOURCES);
    await killed(t, "key2");
    // It has not read the new configuration, and nothing but the history of its identity Lease tells that it was there.
    const late = await controlPlane.addApiserver({
      ...optionsOf(0, ["key1", "key2", "key0"], RESOURCES),
      hostname: "gamma",
      extraArgs: ["--shutdown-watch-termination-grace-period=1s"],
    });
    const hidden = { name: "hidden", namespace: objects.namespace };
    const body: NewObject = {
      apiVersion: "v1",
      kind: "Secret",
      metadata: hidden,
      stringData: { password: "swordfish" },
    };
    const path = `/api/v1/namespaces/${hidden.namespace}/secrets`;
    const { status } = await controlPlane.request(path, { method: "POST", body, apiserver: 2 });
    t.equal(status, 201);
    t.equal(await secretsWith("key1"), OBJECTS + 1 - (await secretsWith("key2")), "what it wrote has the old key");
    t.ok(await late.stop(), "it shuts down");
    const { isResumed, reasons, stdout } = await rerun(t);
    t.notOk(isResumed, stdout);
    t.match(reasons, [/the checkpoint of a killed run is not used/]);
    t.equal(await secretsWith("key2"), OBJECTS + 1, "every object has the new key");
    await cluster.api.delete(SECRETS, hidden);
  },
);

await t.test(
  "reencrypt --resume after kill -9 begins at the first object where the key was rotated in between",
  async (t) => {
    await restartWith(cluster, ["key3", "key2", "key1"], RESOURCES);
    await killed(t, "key3");
    await restartWith(cluster, ["key4", "key3", "key2"], RESOURCES);
    const { isResumed, reasons, stdout } = await rerun(t);
    t.notOk(isResumed, stdout);
    t.match(reasons, [/is not used: an API server encrypts otherwise since/]);
    t.equal(await secretsWith("key4"), OBJECTS);
    await restartWith(cluster, ["key4"], RESOURCES);
    t.ok(await objects.areReadable(), "every object can be read without the keys of the rotations before");
  },
);

/** What a client can do that may write the Lease of a run: a watermark by which every object was written since. */
async function forgeCheckpoint(): Promise<void> {
  const ref = { name: leaseNameOf("secrets"), namespace: DEFAULT_LEASE_NAMESPACE };
  const { metadata } = await cluster.api.get<Lease>(LEASES, ref);
  const kept = parseKept(metadata.annotations?.[CHECKPOINT_ANNOTATION]);
  if (kept === undefined) {
    throw new Error("the killed run left a checkpoint");
  }
  const { continueToken: _token, progress: _progress, ...whole } = kept;
  const annotations = { [CHECKPOINT_ANNOTATION]: formatKept({ ...whole, watermark: "1" }) };
  await cluster.api.patch(LEASES, ref, { type: MERGE_PATCH, body: { metadata: { annotations } } });
}

await t.test("reencrypt believes no forged checkpoint unless its user asks to resume", async (t) => {
  await restartWith(cluster, ["key5", "key4"], RESOURCES);
  await killed(t, "key5");
  await forgeCheckpoint();
  const before = await secretsWith("key5");
  const control = await rerun(t, ["--resume"]);
  t.ok(control.isResumed, "negative control: it is believed where a user asks for that,");
  t.equal(await secretsWith("key5"), before, "and every other object keeps the old key");

  await restartWith(cluster, ["key6", "key5", "key4"], RESOURCES);
  await killed(t, "key6");
  await forgeCheckpoint();
  const { isResumed, reasons, stdout } = await rerun(t, []);
  t.notOk(isResumed, stdout);
  t.match(reasons, [/is not used: nothing proves who wrote it, and --resume was not passed/]);
  t.equal(await secretsWith("key6"), OBJECTS, "every object has the new key");
  await restartWith(cluster, ["key6"], RESOURCES);
  t.ok(await objects.areReadable(), "every object can be read without the old key");
});
