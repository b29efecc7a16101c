import t from "tap";
import { encryptionConfig, IDENTITY } from "../control-plane/encryption.ts";
import { balance } from "./balancer.ts";
import { contents, encodings, restartStoring, storing, untilServed } from "./cbor-objects.ts";
import { Cluster } from "./cluster.ts";
import { TestKind } from "./crd-fixture.ts";

const OBJECTS = 8;

// Nothing is encrypted.
const cluster = await Cluster.start(t, { apiservers: 2, overrides: [storing("json", 0), storing("json", 1)] });
const { controlPlane } = cluster;
const [first = "", second = ""] = controlPlane.apiservers.map(({ url }) => url);
const EACH = ["--settle", "1s", "--apiserver-endpoints", `${first},${second}`];

const [kind, other] = [new TestKind("stored"), new TestKind("other")];
for (const one of [kind, other]) {
  await cluster.createCrd(one, { storage: "v1" });
  await cluster.createObjects(one.resource("v1"), one.objects(OBJECTS, "v1"));
}
const before = await contents(cluster, kind);

/** As a user calls it. */
function reencrypt(args: readonly string[], onStdout?: (text: string) => void) {
  return cluster.ksvm(["reencrypt", ...EACH, ...args], onStdout === undefined ? {} : { onStdout });
}

await Promise.all([0, 1].map((index) => restartStoring(cluster, "cbor", { index })));
await Promise.all([0, 1].map((index) => untilServed(cluster, other, index)));
await reencrypt(["--expect-encoding", "cbor", other.name]);

await t.test("reencrypt needs --expect-encoding where no API server has an encryption configuration", async (t) => {
  const run = await reencrypt([kind.name]);
  t.equal(run.code, 1, run.stdout);
  t.match(run.stderr, /\[EncryptionUnknown\]/);
  t.same(await encodings(cluster, kind), { "json v1": OBJECTS }, "nothing was written");
  const usage = await reencrypt(["--assume-config-rolled-out", "--expect-encoding", "cbor", kind.name]);
  t.equal(usage.code, 2, usage.stderr);
  t.equal((await reencrypt(["--expect-encoding", "yaml", kind.name])).code, 2);
});

await t.test("reencrypt refuses where one API server still writes JSON, and names it", async (t) => {
  await restartStoring(cluster, "json", { index: 1 });
  await untilServed(cluster, kind, 1);
  const args = ["--expect-encoding", "cbor", "--convergence-timeout", "3s"];
  const run = await reencrypt([...args, kind.name]);
  t.equal(run.code, 1, run.stdout);
  t.match(run.stderr, `${second}: it stores custom resources as JSON, and ${first} as CBOR`);
  t.match(run.stderr, /\[NotConverged\]/);
  t.same(await encodings(cluster, kind), { "json v1": OBJECTS }, "nothing was written");
  const through = ["--kubeconfig", controlPlane.kubeconfigFor("admin", 1)];
  const control = await reencrypt(["--assume-config-rolled-out", ...through, kind.name]);
  t.equal(control.code, 0, "negative control: without the evidence it reports success");
  t.same(await encodings(cluster, kind), { "json v1": OBJECTS }, "and every object stays JSON");
});

await t.test("reencrypt waits for an API server that writes CBOR later, and leaves no object as JSON", async (t) => {
  let late: Promise<void> | undefined;
  const run = await reencrypt(["--expect-encoding", "cbor", kind.name], (text) => {
    if (text.includes(`waiting for ${second}: it stores custom resources as JSON`)) {
      late ??= restartStoring(cluster, "cbor", { index: 1 });
    }
  });
  await late;
  t.ok(late !== undefined, "it named the API server that is late");
  t.equal(run.code, 0, run.stdout + run.stderr);
  t.match(run.stdout, new RegExp(`${kind.name}: rewritten as CBOR in .*: ${OBJECTS} rewritten`));
  t.same(await encodings(cluster, kind), { "cbor v1": OBJECTS });
  t.same(await contents(cluster, kind), before, "nothing of an object has changed but its bytes");
});

await t.test("reencrypt --expect-encoding waits where all API servers write the other encoding", async (t) => {
  const run = await reencrypt(["--expect-encoding", "json", "--convergence-timeout", "3s", kind.name]);
  t.equal(run.code, 1, run.stdout);
  t.match(run.stderr, /it stores custom resources as CBOR, which is not JSON of --expect-encoding/);
  t.same(await encodings(cluster, kind), { "cbor v1": OBJECTS });
});

await t.test("reencrypt behind one address brings every object back to JSON, of several kinds", async (t) => {
  // One after the other: the time at which it started tells one from the other.
  for (const index of [0, 1]) await restartStoring(cluster, "json", { index });
  const { kubeconfig } = await balance(t, controlPlane, [first, second]);
  const args = ["reencrypt", "--settle", "1s", "--kubeconfig", kubeconfig, "--expect-encoding", "json"];
  const run = await cluster.ksvm([...args, kind.name, other.name]);
  t.equal(run.code, 0, run.stdout + run.stderr);
  t.match(run.stdout, /rewrote 2 of 2 resources: 16 rewritten/);
  t.equal(run.stderr, "");
  for (const one of [kind, other]) t.same(await encodings(cluster, one), { "json v1": OBJECTS });
  t.same(await contents(cluster, kind), before);
});

await t.test("reencrypt compares encodings also where the API servers show one encryption configuration", async (t) => {
  const encryption = { encryptionConfig: encryptionConfig([IDENTITY]) };
  await Promise.all([
    restartStoring(cluster, "cbor", { index: 0, ...encryption }),
    restartStoring(cluster, "json", { index: 1, ...encryption }),
  ]);
  const mixed = await reencrypt(["--convergence-timeout", "3s", kind.name]);
  t.equal(mixed.code, 1, mixed.stdout);
  t.match(mixed.stderr, /it stores custom resources as JSON, and .*as CBOR.*\[NotConverged\]/);
  t.same(await encodings(cluster, kind), { "json v1": OBJECTS });
  await restartStoring(cluster, "cbor", { index: 1, ...encryption });
  const run = await reencrypt([kind.name]);
  t.equal(run.code, 0, run.stdout + run.stderr);
  t.match(run.stdout, /re-encrypted as CBOR in/);
  t.same(await encodings(cluster, kind), { "cbor v1": OBJECTS });
});
