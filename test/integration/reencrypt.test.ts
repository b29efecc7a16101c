import { createHash } from "node:crypto";
import t from "tap";
import { Interruption } from "../../src/cli/shared/interruption.ts";
import { IDENTITY_NAMESPACE } from "../../src/apiservers/control-plane-objects.ts";
import { LEASES } from "../../src/kube/resources.ts";
import { IDENTITY, storedWith } from "../control-plane/encryption.ts";
import { balance } from "./balancer.ts";
import { Cluster, eventually } from "./cluster.ts";
import { EncryptedObjects, optionsOf, restartWith } from "./encrypted-objects.ts";
import { holdableEtcd } from "./held-etcd.ts";
import { rejectUpdates } from "./reject-updates.ts";

// Each test leaves every object with its last key. All keys are known to API servers at any time: what changes is which one they write with.

const OBJECTS = 20;
const ALL = OBJECTS * 3;
const KEYS = Array.from({ length: 13 }, (_, index) => `key${index}`);

const cluster = await Cluster.start(t, {
  apiservers: 2,
  users: [{ name: "blind" }],
  overrides: [optionsOf(0, [IDENTITY, ...KEYS]), optionsOf(1, [IDENTITY, ...KEYS])],
});
const { api, controlPlane } = cluster;
const [first = "", second = ""] = controlPlane.apiservers.map(({ url }) => url);
const EACH = ["--settle", "1s", "--apiserver-endpoints", `${first},${second}`];
/** ksvm writes through the second API server, which is the one that is late. */
const THROUGH_SECOND = ["--kubeconfig", controlPlane.kubeconfigFor("admin", 1)];
const etcd = await holdableEtcd(t, controlPlane.etcd.url);
const objects = await EncryptedObjects.create(cluster, OBJECTS);

/** The keys in the order in which they are tried; the first one encrypts. */
function beginningWith(key: string): readonly string[] {
  return [key, ...KEYS.filter((other) => other !== key), IDENTITY];
}

/** Has API servers write with a key from now on. */
async function use(key: string, indexes: readonly number[] = [0, 1]): Promise<void> {
  await restartWith(cluster, beginningWith(key), { indexes });
}

function reencrypt(args: readonly string[], onStdout: (text: string) => void = () => undefined) {
  return cluster.ksvm(["reencrypt", ...EACH, ...args], { onStdout });
}

async function countWith(resource: string, key: string): Promise<number> {
  return (await objects.keysOfEach()).get(resource)?.[storedWith(key)] ?? 0;
}

/** Starts a third API server, with another key and on a way to etcd that can be held. @returns its index, and what ends it for good */
async function addThird(key: string) {
  const third = await controlPlane.addApiserver({ ...optionsOf(2, beginningWith(key)), etcdUrl: etcd.url });
  const remove = async (): Promise<void> => {
    await third.kill();
    const of = { namespace: IDENTITY_NAMESPACE, labelSelector: "kubernetes.io/hostname=gamma" };
    for (const { metadata } of await api.list<{ metadata: { name: string } }>(LEASES, of)) {
      await api.delete(LEASES, { name: metadata.name, namespace: IDENTITY_NAMESPACE });
    }
  };
  return { index: controlPlane.apiservers.indexOf(third), remove };
}

/** Sends a write of a Secret through an API server. */
async function writeSecret(name: string, method: "PATCH" | "POST", apiserver: number): Promise<number> {
  const secrets = `/api/v1/namespaces/${objects.namespace}/secrets`;
  const body = { metadata: { name, labels: { written: "late" } } };
  const path = method === "POST" ? secrets : `${secrets}/${name}`;
  return (await controlPlane.request(path, { method, body, apiserver })).status;
}

await t.test("everything is encrypted for the first time", async (t) => {
  t.same(await objects.keys(), { none: ALL }, "nothing is encrypted");
  await use("key0");
  const run = await reencrypt(objects.names);
  t.equal(run.code, 0, run.stdout + run.stderr);
  t.match(run.stdout, /every API server encrypts with configuration sha256:[0-9a-f]{64} \(https:.*, https:.*\)/);
  t.match(run.stdout, /re-encrypted 3 of 3 resources with configuration sha256:/);
  t.same(await objects.keys(), { [storedWith("key0")]: ALL });
});

await t.test("an API server that has not read the new key yet is waited for and named", async (t) => {
  await use("key1", [0]);
  const control = await reencrypt([...THROUGH_SECOND, "--assume-config-rolled-out", ...objects.names]);
  t.equal(control.code, 0, "negative control: without the evidence it reports success");
  t.match(control.stderr, /warning: no API server is asked which encryption configuration it uses/);
  t.same(await objects.keys(), { [storedWith("key0")]: ALL }, "and every object keeps the old key");

  let late: Promise<void> | undefined;
  const run = await reencrypt([...THROUGH_SECOND, ...objects.names], (text) => {
    if (text.includes(`waiting for ${second}: it uses encryption configuration sha256:`)) {
      late ??= use("key1", [1]);
    }
  });
  t.ok(late !== undefined, "it is named");
  await late;
  t.equal(run.code, 0, run.stdout + run.stderr);
  t.same(await objects.keys(), { [storedWith("key1")]: ALL });
  await restartWith(cluster, ["key1"]);
  t.ok(await objects.areReadable(), "every object can be read without the old key");
});

await t.test("behind one address an API server that is late is waited for, by its identity Lease", async (t) => {
  await use("key1", [0]);
  await use("key2", [1]);
  const { kubeconfig } = await balance(t, controlPlane, [first, second]);
  let late: Promise<void> | undefined;
  const onStdout = (text: string): void => {
    if (/waiting for https:\/\/[^ ]+ \(apiserver-[^ ]+\): it uses encryption configuration/.test(text)) {
      late ??= use("key2", [0]);
    }
  };
  const args = ["reencrypt", "--settle", "1s", "--kubeconfig", kubeconfig, ...objects.names];
  const run = await cluster.ksvm(args, { onStdout });
  await late;
  t.ok(late !== undefined, "it is named");
  t.equal(run.code, 0, run.stdout + run.stderr);
  t.same(await objects.keys(), { [storedWith("key2")]: ALL });
});

await t.test(
  "--expect-config waits for the new configuration where all API servers still use the old one",
  async (t) => {
    const config = optionsOf(0, beginningWith("key3")).encryptionConfig;
    const digest = createHash("sha256").update(config).digest("hex");
    const early = await reencrypt(["secrets"]);
    t.equal(early.code, 0, early.stderr);
    t.match(early.stderr, /note: no object was rewritten:.*--expect-config/, "a hint is all that shows it without");
    const run = await reencrypt(["--expect-config", digest, "--convergence-timeout", "3s", "secrets"]);
    t.equal(run.code, 1, run.stdout);
    t.match(
      run.stderr,
      new RegExp(`${first}: it uses.*which is not sha256:${digest} of --expect-config.*NotConverged`),
    );
    await use("key3");
    const done = await reencrypt(["--expect-config", `sha256:${digest}`, ...objects.names]);
    t.equal(done.code, 0, done.stderr);
    t.equal(done.stderr, "");
    t.same(await objects.keys(), { [storedWith("key3")]: ALL });
  },
);

await t.test("what it cannot prove is refused with a clear line, and nothing is written", async (t) => {
  await cluster.api.create(
    { group: "rbac.authorization.k8s.io", version: "v1", resource: "clusterroles" },
    {
      apiVersion: "rbac.authorization.k8s.io/v1",
      kind: "ClusterRole",
      metadata: { name: "blind" },
      rules: [{ apiGroups: ["*"], resources: ["*"], verbs: ["*"] }],
    },
  );
  await cluster.api.create(
    { group: "rbac.authorization.k8s.io", version: "v1", resource: "clusterrolebindings" },
    {
      apiVersion: "rbac.authorization.k8s.io/v1",
      kind: "ClusterRoleBinding",
      metadata: { name: "blind" },
      roleRef: { apiGroup: "rbac.authorization.k8s.io", kind: "ClusterRole", name: "blind" },
      subjects: [{ apiGroup: "rbac.authorization.k8s.io", kind: "User", name: "blind" }],
    },
  );
  const isAllowed = async (): Promise<boolean> =>
    (await controlPlane.request("/api/v1/secrets?limit=1", { user: "blind" })).status === 200;
  await eventually(isAllowed, "the role is in force");
  await use("key4");
  const blind = await reencrypt(["--kubeconfig", controlPlane.kubeconfigFor("blind"), "secrets"]);
  t.match(blind, { code: 1, stderr: /may not get the nonResourceURL "\/metrics"; nothing was changed.*\[Forbidden\]/ });

  await use("key3", [1]);
  const apart = await reencrypt(["--convergence-timeout", "3s", "secrets"]);
  const isOther = `do not encrypt alike: ${second}: it uses encryption configuration.*\\[NotConverged\\]`;
  t.match(apart, { code: 1, stderr: new RegExp(isOther) });

  const assumed = ["--assume-config-rolled-out", "--expect-config", "a".repeat(64)];
  for (const args of [[], ["--all", "secrets"], ["--expect-config", "abc", "secrets"], ["secrets", ...assumed]]) {
    t.equal((await cluster.ksvm(["reencrypt", ...args])).code, 2, `wrong usage: ${args.join(" ")}`);
  }
  t.same(await objects.keys(), { [storedWith("key3")]: ALL });
});

await t.test("a rejected object is named, and the old key is said to be needed", async (t) => {
  await use("key4");
  const { kind } = objects;
  const message = "this one stays as it is";
  const allow = await rejectUpdates(cluster, kind, { expression: 'object.metadata.name != "o7"', message });
  await eventually(async () => !(await objects.canUpdate("o7")), "the rule is in force");
  const run = await reencrypt(objects.names);
  t.equal(run.code, 3, run.stdout + run.stderr);
  t.match(run.stdout, new RegExp(`${kind.name}: incomplete after .*, 1 failed; the old key is still needed`));
  t.match(run.stdout, new RegExp(`re-encrypted 2 of 3 resources.*; not ${kind.name}: the old key is still needed`));
  t.match(run.stderr, /o7: .*this one stays as it is/);
  t.same(await objects.keys(), { [storedWith("key4")]: ALL - 1, [storedWith("key3")]: 1 });
  await allow();
  await eventually(() => objects.canUpdate("o7"), "the rule is gone");
  t.equal((await reencrypt([kind.name])).code, 0);
  t.same(await objects.keys(), { [storedWith("key4")]: ALL });
});

await t.test("a run that was killed begins at the first object, after another rotation too", async (t) => {
  await use("key5");
  const run = cluster.spawnKsvm(t, ["reencrypt", ...EACH, "--max-qps", "5", "--page-size", "5", "secrets"]);
  await eventually(async () => (await countWith("secrets", "key5")) > 5, "it is in the middle");
  await run.kill();
  t.ok((await countWith("secrets", "key5")) < OBJECTS, "it was not done");
  await use("key6");
  const again = await reencrypt(objects.names);
  t.equal(again.code, 0, again.stdout + again.stderr);
  t.same(await objects.keys(), { [storedWith("key6")]: ALL });
});

await t.test("another rotation in the midst of a run has everything rewritten once more", async (t) => {
  const { name } = objects.kind;
  await use("key7");
  const run = cluster.spawnKsvm(t, ["reencrypt", ...EACH, "--max-qps", "20", "--page-size", "5", ...objects.names]);
  await eventually(async () => (await countWith(name, "key7")) > 2, "it rewrites the last of the resources");
  run.pause();
  await use("key8");
  run.resume();
  const { code, stderr, stdout } = await run.ended;
  t.equal(code, 0, stdout + stderr);
  t.match(stdout, new RegExp(`${name}: starting again: `));
  t.match(stdout, /every resource: since then .*changed its encryption: again secrets, configmaps/);
  t.same(await objects.keys(), { [storedWith("key8")]: ALL });
});

await t.test(
  "what an API server with the old key wrote, which joined and left in the midst of a run, is rewritten",
  async (t) => {
    await use("key9");
    const flags = ["--max-qps", "20", "--page-size", "5"];
    const run = cluster.spawnKsvm(t, ["reencrypt", ...EACH, ...flags, ...objects.names]);
    await eventually(async () => (await countWith("configmaps", "key9")) > 2, "the Secrets are done");
    run.pause();
    const third = await addThird("key8");
    t.equal(await writeSecret("o3", "PATCH", third.index), 200);
    t.equal(await countWith("secrets", "key8"), 1, "it has the old key again");
    await third.remove();
    run.resume();
    const { code, stderr, stdout } = await run.ended;
    t.equal(code, 0, stdout + stderr);
    t.match(stdout, /every resource: since then an API server may have come, gone .*: again secrets/);
    t.same(await objects.keys(), { [storedWith("key9")]: ALL });
  },
);

await t.test("a write with the old key that is on its way to etcd when the run begins is waited for", async (t) => {
  await use("key10");
  const third = await addThird("key9");
  etcd.hold();
  const written = writeSecret("late", "POST", third.index).catch(() => undefined);
  const key = `/registry/secrets/${objects.namespace}/late`;
  await eventually(async () => etcd.holds(key), "the write is on its way");
  await third.remove();
  await written;
  const run = await reencrypt(["--settle", "5s", ...objects.names], (text) => {
    if (text.includes("in-flight writes")) etcd.letGo();
  });
  t.equal(run.code, 0, run.stdout + run.stderr);
  const { createRevision: revision = 0 } = (await controlPlane.stored.readKey(key)) ?? {};
  const [created] = await controlPlane.stored.objectsUnder(key, { revision });
  t.equal(created?.encryptedWith, storedWith("key9"), "it landed during the run, with the old key,");
  t.same(await objects.keys(), { [storedWith("key10")]: ALL + 1 }, "and was rewritten");
  await api.delete({ group: "", version: "v1", resource: "secrets" }, { name: "late", namespace: objects.namespace });
});

await t.test("a run that is interrupted before its last look proves nothing", async (t) => {
  const stop = new AbortController();
  const onStdout = (text: string): void => {
    if (/configmaps: re-encrypted/.test(text)) stop.abort(new Interruption("SIGINT"));
  };
  const run = await cluster.ksvm(["reencrypt", ...EACH, "secrets", "configmaps"], { signal: stop.signal, onStdout });
  t.ok(stop.signal.aborted, run.stdout);
  t.equal(run.code, 130, run.stdout);
  t.match(run.stdout, /re-encrypted 0 of 2 resources.*; not secrets, configmaps: the old key is still needed/);
});

await t.test("migrate --force resumes nothing of a forced run that was killed before another rotation", async (t) => {
  const { name } = objects.kind;
  await use("key11");
  await cluster.waitForVersion(objects.kind, "v1");
  // The identity Leases tell of a restart; a configuration that is read without one shows nowhere. So they are not looked at.
  const args = ["--force", "--apiserver-endpoints", first, "--page-size", "5"];
  const run = cluster.spawnKsvm(t, ["migrate", "--settle", "1s", ...args, "--max-qps", "10", name]);
  await eventually(async () => (await countWith(name, "key11")) > 5, "it is in the middle");
  await run.kill();
  t.ok((await countWith(name, "key11")) < OBJECTS, "it was not done");
  await use("key12");
  await cluster.waitForVersion(objects.kind, "v1");
  const again = await cluster.migrate([...args, name]);
  t.equal(again.code, 0, again.stdout + again.stderr);
  t.equal(await countWith(name, "key12"), OBJECTS);
  t.equal((await reencrypt(objects.names)).code, 0);
});

await t.test("everything is decrypted where identity is the first provider", async (t) => {
  await restartWith(cluster, [IDENTITY, ...KEYS]);
  const run = await reencrypt(["-o", "json", ...objects.names]);
  t.equal(run.code, 0, run.stdout + run.stderr);
  const last = JSON.parse(run.stdout.trimEnd().split("\n").at(-1) ?? "") as object;
  t.match(last, { type: "summary", resources: objects.names, notDone: [], encryption: /^sha256:/ });
  t.same(await objects.keys(), { none: ALL });
});

await t.test("an API server that does not tell how it encrypts is named", async (t) => {
  await controlPlane.restartApiserver(1, { hostname: optionsOf(1, []).hostname });
  const run = await reencrypt(["--convergence-timeout", "3s", "secrets"]);
  const isNamed = `${second} does not show which encryption configuration it uses: .*--assume-config-rolled-out`;
  t.match(run, { code: 1, stderr: new RegExp(`${isNamed}.*\\[EncryptionUnknown\\]`) });
});
