import t from "tap";
import { IDENTITY, storedWith } from "../control-plane/encryption.ts";
import { Cluster } from "./cluster.ts";
import { EncryptedObjects, optionsOf, restartWith } from "./encrypted-objects.ts";

const OBJECTS = 20;
const ALL = OBJECTS * 3;

const cluster = await Cluster.start(t, {
  apiservers: 2,
  overrides: [optionsOf(0, [IDENTITY]), optionsOf(1, [IDENTITY])],
});
const { controlPlane } = cluster;
const [first = "", second = ""] = controlPlane.apiservers.map(({ url }) => url);
const EACH = ["--settle", "1s", "--apiserver-endpoints", `${first},${second}`];
/** ksvm writes through the second API server, which is the one that is late. */
const THROUGH_SECOND = ["--kubeconfig", controlPlane.kubeconfigFor("admin", 1)];

const objects = await EncryptedObjects.create(cluster, OBJECTS);

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
  await restartWith(cluster, ["key1"], { indexes: [0, 1] });
});

await t.test("reencrypt decrypts everything where identity is the first provider", async (t) => {
  await restartWith(cluster, [IDENTITY, "key1"]);
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

await t.test("reencrypt names neither what to rewrite nor --all, or both: wrong usage", async (t) => {
  t.equal((await cluster.ksvm(["reencrypt"])).code, 2);
  t.equal((await cluster.ksvm(["reencrypt", "--all", "secrets"])).code, 2);
});
