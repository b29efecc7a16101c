// The certificates that ksvm keeps in a Secret: ksvm certs ensure, rotate and status, and a rotation under load.
import { X509Certificate } from "node:crypto";
import t, { type Test } from "tap";
import { SYSTEM_NAMESPACE } from "../../src/api/migration.ts";
import { CERTIFICATE_SECRET } from "../../src/api/names.ts";
import { type KubeObject, MERGE_PATCH, SECRETS } from "../api-client.ts";
import { Cluster } from "./cluster.ts";
import { startController } from "./controller.ts";
import { certificatesIn, keepConnecting, servedAt, trustedCas } from "./handshakes.ts";
import { installSystem } from "./migrations.ts";
import { createFrozen, describeLoad, StorageChangeLoad, untilDenied } from "./storage-change-load.ts";

const cluster = await Cluster.start(t);
const { api } = cluster;
await installSystem(cluster);

const DWELL = ["--apiserver-dwell=3s", "--replica-dwell=3s"];

function certs(command: string, ...args: readonly string[]) {
  return cluster.ksvm(["certs", command, ...(command === "status" ? [] : DWELL), ...args]);
}

interface Secret extends KubeObject {
  readonly data?: Readonly<Record<string, string>>;
}

const OWN = { namespace: SYSTEM_NAMESPACE, name: CERTIFICATE_SECRET };

async function read(name = CERTIFICATE_SECRET) {
  const { data = {}, metadata } = await api.get<Secret>(SECRETS, { ...OWN, name });
  const text = (key: string): string => Buffer.from(data[key] ?? "", "base64").toString();
  const serving = new X509Certificate(text("tls.crt"));
  return { metadata, text, serving, cas: certificatesIn(text("ca.crt")) };
}

/** Writes into the Secret past ksvm; `null` takes a key out. */
function spoil(data: Readonly<Record<string, string | null>>): Promise<unknown> {
  return api.patch(SECRETS, OWN, { type: MERGE_PATCH, body: { data } });
}

/** One CA, which signed what is served. */
async function assertSteady(t: Test): Promise<void> {
  const { cas, serving } = await read();
  t.equal(cas.length, 1);
  t.ok(cas.every((ca) => serving.verify(ca.publicKey)));
}

await t.test("three that start at once on an empty Secret end with one CA", async (t) => {
  const ends = await Promise.all([certs("ensure"), certs("ensure"), certs("ensure")]);
  for (const { code, stderr } of ends) t.equal(code, 0, stderr);
  await assertSteady(t);
});

await t.test(
  "ensure changes nothing where nothing is due, rotate --now changes all, and no output has a key",
  async (t) => {
    const before = await read();
    const again = await certs("ensure", "--log-level=trace");
    t.equal(again.code, 0, again.stderr);
    t.equal((await read()).metadata.resourceVersion, before.metadata.resourceVersion);
    const rotated = await certs("rotate", "--now", "--log-level=trace");
    t.equal(rotated.code, 0, rotated.stderr);
    const after = await read();
    t.not(after.cas[0]?.fingerprint256, before.cas[0]?.fingerprint256);
    await assertSteady(t);
    const [text, json] = [await certs("status"), await certs("status", "-o", "json")];
    t.match(text.stdout, /^CERTIFICATE +EXPIRES +RENEWAL +FINGERPRINT\nCA +\d{4}-/);
    t.match(JSON.parse(json.stdout), { phase: "steady", bundle: [after.cas[0]?.fingerprint256] });
    const output = [again, rotated, text, json].map(({ stdout, stderr }) => stdout + stderr).join("");
    const keys = [before, after].flatMap((one) => [one.text("tls.key"), one.text("ca.key")]);
    const lines = keys.flatMap((key) => key.split("\n").filter((line) => line.length > 40));
    t.ok(lines.length > 40);
    t.notOk(lines.some((line) => output.includes(line)));
  },
);

await t.test("what is missing or broken in the Secret is replaced", async (t) => {
  const before = await read();
  await spoil({ "tls.key": Buffer.from("nonsense").toString("base64") });
  t.match(await certs("ensure"), { code: 0 });
  t.equal((await read()).cas[0]?.fingerprint256, before.cas[0]?.fingerprint256, "API servers go on trusting the CA");
  await assertSteady(t);
  for (const keys of [["ca.key"], ["ca.key", "ca.crt"]]) {
    await spoil(Object.fromEntries(keys.map((key) => [key, null])));
    t.match(await certs("rotate"), { code: 0 });
    await assertSteady(t);
  }
});

await t.test("a Secret of another owner is refused in one line, and left alone", async (t) => {
  const base = { apiVersion: "v1", kind: "Secret" };
  const data = { "tls.crt": "YQ==", "tls.key": "YQ==" };
  for (const [name, content] of [
    ["foreign", { type: "kubernetes.io/tls", data }],
    ["typed", { type: "example.com/own" }],
  ] as const) {
    const created = await api.create<Secret>(SECRETS, { ...base, ...content, metadata: { ...OWN, name } });
    const { code, stdout, stderr } = await certs("ensure", "--secret", name);
    t.match({ code, stdout }, { code: 1, stdout: "" });
    t.match(stderr, /^error: [^\n]+\[CertificateSecretUnusable\]\n$/);
    const { metadata } = await api.get<Secret>(SECRETS, { ...OWN, name });
    t.equal(metadata.resourceVersion, created.metadata.resourceVersion);
  }
  const empty = { type: "kubernetes.io/tls", data: { "tls.crt": "", "tls.key": "" } };
  await api.create(SECRETS, { ...base, ...empty, metadata: { ...OWN, name: "empty" } });
  t.match(await certs("ensure", "--secret=empty"), { code: 0 }, "an empty one is filled");
  t.ok((await read("empty")).serving.checkHost(`ksvm-webhook.${SYSTEM_NAMESPACE}.svc`));
});

await t.test("the serving certificate is valid for --extra-names and the host of --webhook-url", async (t) => {
  const names = ["--extra-names=localhost", "--webhook-url=https://hooks.example:9443/validate"];
  t.match(await certs("ensure", "--secret=named", ...names), { code: 0 });
  const { serving } = await read("named");
  t.ok(serving.checkHost("hooks.example") && serving.checkHost("localhost"));
  t.notOk((await read()).serving.checkHost("hooks.example"), "by itself");
});

await t.test("mistakes are told before anything is written", async (t) => {
  t.match(await certs("status", "--secret=nowhere"), { code: 1, stderr: /\[NotFound\]/ });
  t.match(await certs("ensure", "--serving-lifetime=5000h"), { code: 2, stderr: /\[Usage\]/ });
  t.match(await certs("ensure", "--namespace=nowhere"), { code: 1, stderr: /^error: [^\n]*\[NotFound\]\n$/ });
});

await t.test("two rotations at once under load are one, and no review and no connection is lost", async (t) => {
  const controller = await startController(t, cluster, { flags: DWELL });
  const port = Number(new URL(controller.webhookUrl).port);
  const [kind, { serving }] = await Promise.all([createFrozen(cluster, "frozen"), read()]);
  await untilDenied(cluster, kind);
  t.match(JSON.parse((await certs("status", "-o", "json")).stdout), { caBundle: "published" });

  const [load, connections] = [StorageChangeLoad.start(t, cluster, [kind], 20), keepConnecting(t, cluster, port)];
  const place = [`--webhook-url=${controller.webhookUrl}`, `--replica-endpoints=127.0.0.1:${port}`];
  const rotate = () => certs("rotate", "--now", ...place);
  const ends = await Promise.all([rotate(), rotate()]);
  for (const { code, stderr } of ends) t.equal(code, 0, stderr);
  const [report, { handshakes, failures }] = await Promise.all([load.stop(), connections.stop()]);
  t.comment(`${describeLoad(report)}; ${handshakes} handshakes`);
  t.same(report.others, [], "each review was answered");
  t.same(failures, [], "each connection was trusted");
  t.ok(report.denied > 20 && handshakes > 20);

  const after = await read();
  t.not(after.serving.issuer, serving.issuer, "another CA signs");
  await assertSteady(t);
  t.same(
    (await trustedCas(cluster)).map((ca) => ca.fingerprint256),
    after.cas.map((ca) => ca.fingerprint256),
  );
  t.equal((await servedAt(port)).fingerprint256, after.serving.fingerprint256, "it is served");
  const added = ends.map(({ stdout }) => stdout.split("added a new CA").length - 1);
  t.equal(
    added.reduce((sum, count) => sum + count, 0),
    1,
    ends.map(({ stdout }) => stdout).join(""),
  );
});
