import { createHash } from "node:crypto";
import t from "tap";
import { IDENTITY, storedWith } from "../control-plane/encryption.ts";
import { Interruption } from "../../src/cli/shared/interruption.ts";
import { balance } from "./balancer.ts";
import { Cluster, eventually } from "./cluster.ts";
import { rejectUpdates } from "./reject-updates.ts";
import { EncryptedObjects, optionsOf, restartWith } from "./encrypted-objects.ts";

const OBJECTS = 20;
const ALL = OBJECTS * 3;

const cluster = await Cluster.start(t, {
  apiservers: 2,
  users: [{ name: "blind" }],
  overrides: [optionsOf(0, [IDENTITY]), optionsOf(1, [IDENTITY])],
});
const { controlPlane } = cluster;
const [first = "", second = ""] = controlPlane.apiservers.map(({ url }) => url);
const EACH = ["--settle", "1s", "--apiserver-endpoints", `${first},${second}`];
/** ksvm writes through the second API server, which is the one that is late. */
const THROUGH_SECOND = ["--kubeconfig", controlPlane.kubeconfigFor("admin", 1)];

const objects = await EncryptedObjects.create(cluster, OBJECTS);

/** May do everything with resources, and nothing else. */
async function grantAllResources(name: string): Promise<void> {
  const [group, version] = ["rbac.authorization.k8s.io", "v1"];
  const about = { apiVersion: `${group}/${version}`, metadata: { name } };
  const rules = [{ apiGroups: ["*"], resources: ["*"], verbs: ["*"] }];
  await cluster.api.create({ group, version, resource: "clusterroles" }, { ...about, kind: "ClusterRole", rules });
  const roleRef = { apiGroup: group, kind: "ClusterRole", name };
  const subjects = [{ apiGroup: group, kind: "User", name }];
  const binding = { ...about, kind: "ClusterRoleBinding", roleRef, subjects };
  await cluster.api.create({ group, version, resource: "clusterrolebindings" }, binding);
  const client = cluster.clientFor(name);
  const isInForce = () =>
    client.listMetadata({ group: "", version: "v1", resource: "secrets" }, { limit: 1 }).then(
      () => true,
      () => false,
    );
  await eventually(isInForce, "the role is in force");
  await client.transport.close();
}

/** As a user calls it. */
function reencrypt(args: readonly string[], onStdout?: (text: string) => void) {
  return cluster.ksvm(["reencrypt", ...EACH, ...args], onStdout === undefined ? {} : { onStdout });
}

await t.test("reencrypt encrypts everything for the first time", async (t) => {
  t.same(await objects.keys(), { none: ALL }, "nothing is encrypted");
  await restartWith(cluster, ["key0", IDENTITY]);
  const run = await reencrypt(objects.names);
  t.equal(run.code, 0, run.stdout + run.stderr);
  t.match(run.stdout, /every API server encrypts with configuration sha256:[0-9a-f]{64} \(https:.*, https:.*\)/);
  t.match(run.stdout, /re-encrypted 3 of 3 resources with configuration sha256:/);
  t.same(await objects.keys(), { [storedWith("key0")]: ALL });
  await restartWith(cluster, ["key0"]);
  t.ok(await objects.areReadable(), "every object can be read where only the key is known");
});

await t.test("reencrypt waits for an API server that reads the new key 20 s late", async (t) => {
  await restartWith(cluster, ["key0", "key1"]);
  await restartWith(cluster, ["key1", "key0"], { indexes: [0] });

  const control = await reencrypt([...THROUGH_SECOND, "--assume-config-rolled-out", ...objects.names]);
  t.equal(control.code, 0, "negative control: without the evidence it reports success");
  t.match(control.stderr, /warning: no API server is asked which encryption configuration it uses/);
  t.same(await objects.keys(), { [storedWith("key0")]: ALL }, "and every object keeps the old key");

  let late: Promise<void> | undefined;
  const run = await reencrypt([...THROUGH_SECOND, ...objects.names], (text) => {
    if (text.includes(`waiting for ${second}: it uses encryption configuration sha256:`)) {
      late ??= new Promise((resolve) => setTimeout(resolve, 20_000)).then(() =>
        restartWith(cluster, ["key1", "key0"], { indexes: [1] }),
      );
    }
  });
  t.ok(late !== undefined, "it named the API server that is late");
  await late;
  t.equal(run.code, 0, run.stdout + run.stderr);
  t.same(await objects.keys(), { [storedWith("key1")]: ALL });
  await restartWith(cluster, ["key1"]);
  t.ok(await objects.areReadable(), "every object can be read without the old key");
});

await t.test("reencrypt refuses where an API server never reads the new key, and names it", async (t) => {
  await restartWith(cluster, ["key1", "key2"]);
  await restartWith(cluster, ["key2", "key1"], { indexes: [0] });
  const run = await reencrypt(["--convergence-timeout", "5s", "secrets"]);
  t.equal(run.code, 1, run.stdout);
  t.match(
    run.stderr,
    new RegExp(`do not encrypt alike: ${second}: it uses encryption configuration.*\\[NotConverged\\]`),
  );
  t.same(await objects.keys(), { [storedWith("key1")]: ALL }, "nothing was written");
  await restartWith(cluster, ["key1"]);
});

await t.test(
  "reencrypt waits for the configuration that --expect-config names, also where all API servers agree",
  async (t) => {
    const meant = createHash("sha256")
      .update(optionsOf(0, ["key2", "key1"]).encryptionConfig)
      .digest("hex");
    const early = await reencrypt(["secrets"]);
    t.equal(early.code, 0, early.stderr);
    t.match(early.stderr, /note: no object was rewritten:.*--expect-config/, "a hint is all that shows it without");
    const run = await reencrypt(["--expect-config", meant, "--convergence-timeout", "3s", "secrets"]);
    t.equal(run.code, 1, run.stdout);
    t.match(
      run.stderr,
      new RegExp(`${first}: it uses.*which is not sha256:${meant} of --expect-config.*\\[NotConverged\\]`),
    );
    await restartWith(cluster, ["key1", "key2"]);
    await restartWith(cluster, ["key2", "key1"]);
    const done = await reencrypt(["--expect-config", `sha256:${meant}`, ...objects.names]);
    t.equal(done.code, 0, done.stderr);
    t.equal(done.stderr, "");
    t.same(await objects.keys(), { [storedWith("key2")]: ALL });
    t.equal((await reencrypt(["--expect-config", "abc", "secrets"])).code, 2);
  },
);

await t.test("reencrypt behind one address waits for the API server that is late, by its identity Lease", async (t) => {
  await restartWith(cluster, ["key2", "key3"]);
  await restartWith(cluster, ["key3", "key2"], { indexes: [1] });
  const { kubeconfig } = await balance(t, controlPlane, [first, second]);
  let late: Promise<void> | undefined;
  const onStdout = (text: string): void => {
    if (/waiting for https:\/\/[^ ]+ \(apiserver-[^ ]+\): it uses encryption configuration/.test(text)) {
      late ??= restartWith(cluster, ["key3", "key2"], { indexes: [0] });
    }
  };
  const args = ["reencrypt", "--settle", "1s", "--kubeconfig", kubeconfig, ...objects.names];
  const run = await cluster.ksvm(args, { onStdout });
  await late;
  t.ok(late !== undefined, "it waited");
  t.equal(run.code, 0, run.stdout + run.stderr);
  t.same(await objects.keys(), { [storedWith("key3")]: ALL });
});

await t.test("reencrypt without the right to /metrics names it, and writes nothing", async (t) => {
  await restartWith(cluster, ["key4", "key3"]);
  await grantAllResources("blind");
  const blind = ["--kubeconfig", controlPlane.kubeconfigFor("blind")];
  const run = await reencrypt([...blind, "secrets"]);
  t.equal(run.code, 1, run.stdout);
  t.match(run.stderr, /this user may not get the nonResourceURL "\/metrics"; nothing was changed.*\[Forbidden\]/);
  t.same(await objects.keys(), { [storedWith("key3")]: ALL });
  const assumed = await reencrypt([...blind, "--assume-config-rolled-out", ...objects.names]);
  t.equal(assumed.code, 0, "it is not needed where no API server is asked");
  t.same(await objects.keys(), { [storedWith("key4")]: ALL });
});

await t.test("reencrypt names a rejected object, and says that the old key is still needed", async (t) => {
  await restartWith(cluster, ["key5", "key4"]);
  const { kind } = objects;
  const message = "this one stays as it is";
  const allow = await rejectUpdates(cluster, kind, { expression: 'object.metadata.name != "o7"', message });
  await eventually(async () => !(await objects.canUpdate("o7")), "the rule is in force");
  const run = await reencrypt(objects.names);
  t.equal(run.code, 3, run.stdout + run.stderr);
  t.match(run.stdout, new RegExp(`${kind.name}: incomplete after .*, 1 failed; the old key is still needed`));
  t.match(run.stdout, new RegExp(`re-encrypted 2 of 3 resources.*; not ${kind.name}: the old key is still needed`));
  t.match(run.stderr, /o7: .*this one stays as it is/);
  t.same(await objects.keys(), { [storedWith("key5")]: ALL - 1, [storedWith("key4")]: 1 });
  await allow();
  await eventually(() => objects.canUpdate("o7"), "the rule is gone");
  t.equal((await reencrypt([kind.name])).code, 0);
  t.same(await objects.keys(), { [storedWith("key5")]: ALL });
});

await t.test("reencrypt after kill -9 and another rotation believes nothing of the killed run", async (t) => {
  await restartWith(cluster, ["key6", "key5"]);
  const args = ["reencrypt", ...EACH, "--max-qps", "5", "--page-size", "5", "secrets"];
  const killed = cluster.spawnKsvm(t, args);
  const written = async (): Promise<number> => (await objects.keysOfEach()).get("secrets")?.[storedWith("key6")] ?? 0;
  await eventually(async () => (await written()) > 5, "it is in the middle");
  killed.signal("SIGKILL");
  await killed.ended;
  t.ok((await written()) < OBJECTS, "it was not done");
  await restartWith(cluster, ["key7", "key6", "key5"]);
  const run = await reencrypt(objects.names);
  t.equal(run.code, 0, run.stdout + run.stderr);
  t.notMatch(run.stdout, /resuming/);
  t.same(await objects.keys(), { [storedWith("key7")]: ALL });
  await restartWith(cluster, ["key7"]);
  t.ok(await objects.areReadable(), "every object can be read without the old keys");
});

await t.test("reencrypt decrypts everything where identity is the first provider", async (t) => {
  await restartWith(cluster, [IDENTITY, "key7"]);
  const run = await reencrypt(["-o", "json", ...objects.names]);
  t.equal(run.code, 0, run.stdout + run.stderr);
  const lines = run.stdout
    .trimEnd()
    .split("\n")
    .map((line) => JSON.parse(line) as Record<string, unknown>);
  t.match(lines.at(-1), { type: "summary", resources: objects.names, notDone: [], encryption: /^sha256:/ });
  t.same(await objects.keys(), { none: ALL });
  await restartWith(cluster, [IDENTITY]);
  t.ok(await objects.areReadable(), "every object can be read without any key");
});

await t.test("reencrypt refuses where no evidence tells how an API server encrypts", async (t) => {
  await controlPlane.restartApiserver(1, { hostname: optionsOf(1, []).hostname });
  const one = await reencrypt(["--convergence-timeout", "3s", "secrets"]);
  t.equal(one.code, 1, one.stdout);
  t.match(
    one.stderr,
    new RegExp(`${second} does not show which encryption configuration it uses.*\\[EncryptionUnknown\\]`),
  );
  await controlPlane.restartApiserver(0, { hostname: optionsOf(0, []).hostname });
  const none = await reencrypt(["secrets"]);
  t.equal(none.code, 1, none.stdout);
  t.match(none.stderr, /without --encryption-provider-config.*--assume-config-rolled-out.*\[EncryptionUnknown\]/);
  t.notMatch(none.stdout, /waiting for/, "at once, since no API server tells");
});

await t.test(
  "reencrypt that is interrupted after its last resource and before its last look proves nothing",
  async (t) => {
    await restartWith(cluster, ["key1", "key2", IDENTITY]);
    const stop = new AbortController();
    const onStdout = (text: string): void => {
      if (/configmaps: re-encrypted/.test(text)) {
        stop.abort(new Interruption("SIGINT"));
      }
    };
    const run = await cluster.ksvm(["reencrypt", ...EACH, "secrets", "configmaps"], { signal: stop.signal, onStdout });
    t.ok(stop.signal.aborted, run.stdout);
    t.equal(run.code, 130, run.stdout);
    t.match(run.stdout, /re-encrypted 0 of 2 resources.*; not secrets, configmaps: the old key is still needed/);
  },
);

await t.test("reencrypt names neither what to rewrite nor --all, or both: wrong usage", async (t) => {
  t.equal((await cluster.ksvm(["reencrypt"])).code, 2);
  t.equal((await cluster.ksvm(["reencrypt", "--all", "secrets"])).code, 2);
  const both = ["--assume-config-rolled-out", "--expect-config", "a".repeat(64)];
  t.equal((await cluster.ksvm(["reencrypt", "secrets", ...both])).code, 2);
});
