// `ksvm reencrypt`: one rotation of a key on two API servers, and what may come in between.
import { createHash } from "node:crypto";
import t from "tap";
import { Interruption } from "../../src/cli/shared/interruption.ts";
import { LEASES, SECRETS } from "../api-client.ts";
import { leaseName } from "../../src/migrator/run-lease.ts";
import { storedWith } from "../control-plane/encryption.ts";
import { Cluster, eventually } from "./cluster.ts";
import { EncryptedObjects } from "./encrypted-objects.ts";
import { withFewResources } from "./few-resources.ts";
import { holdableEtcd } from "./held-etcd.ts";
import { rejectUpdates } from "./reject-updates.ts";

const OBJECTS = 10;
const ALL = OBJECTS * 3;
const EVERYTHING = ["*.*"];
/** API servers can read both at any time: what changes is which one they write with. */
const [OLD, NEW] = [
  ["key0", "key1"],
  ["key1", "key0"],
];

const cluster = await Cluster.start(t, { overrides: [withFewResources(OLD, { resources: EVERYTHING })] });
const { api, controlPlane } = cluster;
const etcd = await holdableEtcd(t, controlPlane.etcd.url);
const beta = withFewResources(OLD, { index: 1, resources: EVERYTHING });
await controlPlane.addApiserver({ ...beta, etcdUrl: etcd.url });
const [first = "", second = ""] = controlPlane.apiservers.map(({ url }) => url);
const SETTLE = ["--unsafe-settle", "1s"];
const FLAGS = [...SETTLE, "--apiserver-endpoints", `${first},${second}`];
const { encryptionConfig } = withFewResources(NEW, { resources: EVERYTHING });
const digest = createHash("sha256").update(encryptionConfig).digest("hex");
const objects = await EncryptedObjects.create(cluster, OBJECTS);

/** Has an API server write with the new key from now on. */
async function rotate(index: number): Promise<void> {
  await controlPlane.restartApiserver(index, withFewResources(NEW, { index, resources: EVERYTHING }));
}

function reencrypt(args: readonly string[], options: { signal?: AbortSignal; onStdout?: (text: string) => void } = {}) {
  return cluster.ksvm(["reencrypt", ...FLAGS, ...args], options);
}

async function secretsWith(key: string): Promise<number> {
  return (await objects.keysOfEach()).get("secrets")?.[storedWith(key)] ?? 0;
}

await t.test("an API server with the old key is waited for, and so is what it wrote last", async (t) => {
  const stop = new AbortController();
  const isOther = new RegExp(`waiting .*: it uses encryption .*which is not sha256:${digest} of --expect-config`);
  const onStdout = (text: string): void => {
    if (isOther.test(text)) stop.abort(new Interruption("SIGINT"));
  };
  const early = await reencrypt(["--expect-config", digest, "secrets"], { signal: stop.signal, onStdout });
  t.match(early, { code: 130, stdout: isOther }, "all API servers use the old one");

  await rotate(0);
  etcd.hold();
  const path = `/api/v1/namespaces/${objects.namespace}/secrets`;
  const body = { metadata: { name: "late" } };
  const late = controlPlane.request(path, { method: "POST", body, apiserver: 1 }).catch(() => undefined);
  const key = `/registry/secrets/${objects.namespace}/late`;
  await eventually(async () => etcd.holds(key), "the write is on its way");
  const args = ["--unsafe-settle", "5s", "--max-qps", "1", ...objects.names];
  const run = cluster.spawnKsvm(t, ["reencrypt", ...FLAGS, ...args]);
  const isWaiting = new RegExp(`waiting .*${second} (shows )?encryption configuration sha256:`);
  await eventually(async () => isWaiting.test(run.stdout), "the run names the second API server");
  t.same(await objects.keys(), { [storedWith("key0")]: ALL }, "nothing is rewritten meanwhile");
  await rotate(1);
  await late;
  await eventually(async () => run.stdout.includes("requests of before"), "the run waits for late writes");
  etcd.letGo();
  await eventually(async () => (await secretsWith("key1")) > 3, "the run is in the middle");
  await run.kill();
  // As long after the kill: otherwise it would be waited whether the Lease is renewed.
  await api.delete(LEASES, { namespace: "kube-system", name: leaseName("secrets") });
  t.ok((await secretsWith("key1")) < OBJECTS, "it was not done");
  const { createRevision: revision = 0 } = (await controlPlane.stored.readKey(key)) ?? {};
  const [created] = await controlPlane.stored.objectsUnder(key, { revision });
  t.equal(created?.encryptedWith, storedWith("key0"), "the late write landed during the run, with the old key");
  await api.delete(SECRETS, { name: "late", namespace: objects.namespace });
});

await t.test("where a run is interrupted or an object is rejected, the old key is still needed", async (t) => {
  const stop = new AbortController();
  const onStdout = (text: string): void => {
    if (/configmaps: re-encrypted/.test(text)) stop.abort(new Interruption("SIGINT"));
  };
  const { kind } = objects;
  const stopped = await reencrypt(["configmaps", kind.name], { signal: stop.signal, onStdout });
  t.equal(stopped.code, 130, stopped.stdout);
  const nothing = `re-encrypted 0 of 2 resources.*; not configmaps, ${kind.name}: the old key is still needed`;
  t.match(stopped.stdout, new RegExp(nothing), "before its last look");

  const message = "this one stays as it is";
  const allow = await rejectUpdates(cluster, kind, { expression: 'object.metadata.name != "o7"', message });
  await eventually(async () => !(await objects.canUpdate("o7")), "the rule is in force");
  const run = await reencrypt(["configmaps", kind.name]);
  t.equal(run.code, 3, run.stdout + run.stderr);
  t.match(run.stdout, /every API server encrypts with configuration sha256:[0-9a-f]{64}/);
  t.match(run.stdout, new RegExp(`re-encrypted 1 of 2 resources.*; not ${kind.name}: the old key is still needed`));
  t.match(run.stderr, /o7: .*this one stays as it is/);
  const keys = (await objects.keysOfEach()).get(kind.name);
  t.same(keys, { [storedWith("key1")]: OBJECTS - 1, [storedWith("key0")]: 1 });
  await allow();
  await eventually(() => objects.canUpdate("o7"), "the rule is gone");
});
