import { createHash } from "node:crypto";
import t from "tap";
import { IDENTITY, storedWith } from "../control-plane/encryption.ts";
import { balance } from "./balancer.ts";
import { Cluster, eventually } from "./cluster.ts";
import { EncryptedObjects, optionsOf, restartWith } from "./encrypted-objects.ts";
import { grantUser } from "./grant-user.ts";
import { rejectUpdates } from "./reject-updates.ts";

const OBJECTS = 20;
const ALL = OBJECTS * 3;
/** API servers can read both at any time: what changes is which one they write with. */
const KEYS = ["key0", "key1"];

const cluster = await Cluster.start(t, {
  apiservers: 2,
  users: [{ name: "blind" }],
  overrides: [optionsOf(0, [IDENTITY, ...KEYS]), optionsOf(1, [IDENTITY, ...KEYS])],
});
const { controlPlane } = cluster;
const [first = "", second = ""] = controlPlane.apiservers.map(({ url }) => url);
const EACH = ["--settle", "1s", "--apiserver-endpoints", `${first},${second}`];
const objects = await EncryptedObjects.create(cluster, OBJECTS);

function reencrypt(args: readonly string[], onStdout: (text: string) => void = () => undefined) {
  return cluster.ksvm(["reencrypt", ...EACH, ...args], { onStdout });
}

await t.test("wrong usage is refused", async (t) => {
  const assumed = ["--assume-config-rolled-out", "--expect-config", "a".repeat(64)];
  for (const args of [[], ["--all", "secrets"], ["--expect-config", "abc", "secrets"], ["secrets", ...assumed]]) {
    t.equal((await cluster.ksvm(["reencrypt", ...args])).code, 2, args.join(" "));
  }
});

await t.test("an API server that has not read the new key yet is waited for and named", async (t) => {
  await restartWith(cluster, ["key0", "key1", IDENTITY], { indexes: [0] });
  await grantUser(cluster.api, "blind", [{ apiGroups: ["*"], resources: ["*"], verbs: ["*"] }]);
  const isAllowed = async (): Promise<boolean> =>
    (await controlPlane.request("/api/v1/secrets?limit=1", { user: "blind" })).status === 200;
  await eventually(isAllowed, "the role is in force");
  const blind = await reencrypt(["--kubeconfig", controlPlane.kubeconfigFor("blind"), "secrets"]);
  t.match(blind, { code: 1, stderr: /may not get the nonResourceURL "\/metrics"; nothing was changed.*\[Forbidden\]/ });
  const isOther = `do not encrypt alike: ${second}: it uses encryption configuration.*\\[NotConverged\\]`;
  const refused = await reencrypt(["--convergence-timeout", "3s", "secrets"]);
  t.match(refused, { code: 1, stderr: new RegExp(isOther) });

  // It writes through the second API server, which is the one that is late.
  const through = ["--kubeconfig", controlPlane.kubeconfigFor("admin", 1), ...objects.names];
  const control = await reencrypt(["--assume-config-rolled-out", ...through]);
  t.equal(control.code, 0, "negative control: without the evidence it reports success");
  t.match(control.stderr, /warning: no API server is asked which encryption configuration it uses/);
  t.same(await objects.keys(), { none: ALL }, "and no object has the new key");

  let late: Promise<void> | undefined;
  const run = await reencrypt(through, (text) => {
    if (text.includes(`waiting for ${second}: it uses encryption configuration sha256:`)) {
      late ??= restartWith(cluster, ["key0", "key1", IDENTITY], { indexes: [1] });
    }
  });
  t.ok(late !== undefined, "it is named");
  await late;
  t.equal(run.code, 0, run.stdout + run.stderr);
  t.match(run.stdout, /every API server encrypts with configuration sha256:[0-9a-f]{64} \(https:.*, https:.*\)/);
  t.match(run.stdout, /re-encrypted 3 of 3 resources with configuration sha256:/);
  t.same(await objects.keys(), { [storedWith("key0")]: ALL });
  t.ok(await objects.areReadable(), "every object reads back as it was");
});

await t.test("--expect-config waits for the new configuration where all API servers use the old one", async (t) => {
  const keys = ["key1", "key0", IDENTITY];
  const digest = createHash("sha256").update(optionsOf(0, keys).encryptionConfig).digest("hex");
  const early = await reencrypt(["secrets"]);
  t.equal(early.code, 0, early.stderr);
  t.match(early.stderr, /note: no object was rewritten:.*--expect-config/, "a hint is all that shows it without");
  const refused = await reencrypt(["--expect-config", digest, "--convergence-timeout", "3s", "secrets"]);
  const isOther = `${first}: it uses.*which is not sha256:${digest} of --expect-config.*NotConverged`;
  t.match(refused, { code: 1, stderr: new RegExp(isOther) });

  // Behind one address, each API server is told apart by its identity Lease.
  const { kubeconfig } = await balance(t, controlPlane, [first, second]);
  let rotated: Promise<void> | undefined;
  const onStdout = (text: string): void => {
    if (/waiting for https:\/\/[^ ]+ \(apiserver-[^ ]+\): it uses encryption configuration/.test(text)) {
      rotated ??= restartWith(cluster, keys);
    }
  };
  const args = ["reencrypt", "--settle", "1s", "--kubeconfig", kubeconfig, "--expect-config", `sha256:${digest}`];
  const run = await cluster.ksvm([...args, ...objects.names], { onStdout });
  t.ok(rotated !== undefined, "one of them is named");
  await rotated;
  t.equal(run.code, 0, run.stdout + run.stderr);
  t.equal(run.stderr, "");
  t.same(await objects.keys(), { [storedWith("key1")]: ALL });
});

await t.test(
  "everything is decrypted, but for an object that is rejected: it is named, and the old key is needed",
  async (t) => {
    await restartWith(cluster, [IDENTITY, ...KEYS]);
    const { kind } = objects;
    const message = "this one stays as it is";
    const allow = await rejectUpdates(cluster, kind, { expression: 'object.metadata.name != "o7"', message });
    await eventually(async () => !(await objects.canUpdate("o7")), "the rule is in force");
    const run = await reencrypt(objects.names);
    t.equal(run.code, 3, run.stdout + run.stderr);
    t.match(run.stdout, new RegExp(`${kind.name}: incomplete after .*, 1 failed; the old key is still needed`));
    t.match(run.stdout, new RegExp(`re-encrypted 2 of 3 resources.*; not ${kind.name}: the old key is still needed`));
    t.match(run.stderr, /o7: .*this one stays as it is/);
    t.same(await objects.keys(), { none: ALL - 1, [storedWith("key1")]: 1 });
    await allow();
    await eventually(() => objects.canUpdate("o7"), "the rule is gone");
    const again = await reencrypt(["-o", "json", ...objects.names]);
    t.equal(again.code, 0, again.stdout + again.stderr);
    const last = JSON.parse(again.stdout.trimEnd().split("\n").at(-1) ?? "") as object;
    t.match(last, { type: "summary", resources: objects.names, notDone: [], encryption: /^sha256:/ });
    t.same(await objects.keys(), { none: ALL });
  },
);

await t.test("an API server that does not tell how it encrypts is named", async (t) => {
  await controlPlane.restartApiserver(1, { hostname: optionsOf(1, []).hostname });
  const run = await reencrypt(["--convergence-timeout", "3s", "secrets"]);
  const isNamed = `${second} does not show which encryption configuration it uses: .*--assume-config-rolled-out`;
  t.match(run, { code: 1, stderr: new RegExp(`${isNamed}.*\\[EncryptionUnknown\\]`) });
});
