import { X509Certificate } from "node:crypto";
import { pino } from "pino";
import t from "tap";
import { WEBHOOK_NAME } from "../../src/api/names.ts";
import { caBundleOf } from "../../src/certs/ca-bundle.ts";
import { issueCa } from "../../src/certs/issue.ts";
import { keepCertificates } from "../../src/certs/keep-certificates.ts";
import { certificatesIn, decoded, type SecretObject } from "../../src/certs/secret-contents.ts";
import { systemClock } from "../../src/clock.ts";
import { MERGE_PATCH, SECRETS, WEBHOOK_CONFIGURATIONS } from "../../src/kube/resources.ts";
import { Retrier } from "../../src/retry/retrier.ts";
import { VALIDATE_PATH } from "../../src/webhook/app.ts";
import { webhookConfigurationOf } from "../../src/webhook/webhook-configuration.ts";
import {
  createNamespace,
  ensure,
  FLAGS,
  NAMESPACE,
  readTheSecret,
  SECRET,
  serveFromSecret,
  SETTINGS,
} from "./certs-fixture.ts";
import { Cluster, eventually } from "./cluster.ts";
import { TestKind } from "./crd-fixture.ts";
import { conversionBy, serveConversion } from "./serve-webhook.ts";

const cluster = await Cluster.start(t, { users: [{ name: "certs" }] });
const { api, controlPlane } = cluster;
await createNamespace(api);

function certs(command: string, args: readonly string[] = [], options: { secret?: string; kubeconfig?: string } = {}) {
  const { secret = SECRET, kubeconfig = cluster.kubeconfig } = options;
  const flags = command === "status" ? ["--namespace", NAMESPACE] : FLAGS;
  return cluster.ksvm(["certs", command, ...flags, "--secret", secret, "--kubeconfig", kubeconfig, ...args]);
}

function casOf(secret: SecretObject): readonly X509Certificate[] {
  return certificatesIn(decoded(secret, "ca.crt"));
}

/** The lines of the PEM texts of every key that a Secret holds; no log may have one. */
function keyLinesOf(secret: SecretObject): readonly string[] {
  const keys = ["tls.key", "ca.key", "next-ca.key"].map((key) => decoded(secret, key));
  return keys
    .join("\n")
    .split("\n")
    .filter((line) => line.length > 40);
}

await t.test("F29: three processes that start at once on an empty Secret end with one CA", async (t) => {
  const runs = Array.from({ length: 3 }, () => cluster.spawnKsvm(t, ["certs", "ensure", ...FLAGS]));
  const ends = await Promise.all(runs.map(({ ended }) => ended));
  for (const { code, stderr } of ends) t.equal(code, 0, stderr);
  t.equal(ends.filter(({ stdout }) => stdout.includes("created a CA")).length, 1, "one of them created it");
  const secret = await readTheSecret(cluster);
  t.equal(secret.type, "Opaque");
  const [ca, ...more] = casOf(secret);
  t.same(more, []);
  t.ok(ca !== undefined && new X509Certificate(decoded(secret, "tls.crt")).verify(ca.publicKey));
});

await t.test("ensure is idempotent, status shows what there is, and no key is in any output", async (t) => {
  const before = await readTheSecret(cluster);
  const again = await certs("ensure", ["--log-level", "trace"]);
  t.equal(again.code, 0, again.stderr);
  t.match(again.stdout, /^certificates are current; the next renewal is due at /);
  t.equal((await readTheSecret(cluster)).metadata.resourceVersion, before.metadata.resourceVersion);
  const rotated = await certs("rotate", ["--now", "--log-level", "trace"]);
  t.equal(rotated.code, 0, rotated.stderr);
  const [old] = casOf(before);
  const after = await readTheSecret(cluster);
  t.not(casOf(after)[0]?.fingerprint256, old?.fingerprint256);
  const text = await certs("status");
  const json = await certs("status", ["-o", "json"]);
  t.match(text.stdout, /^CERTIFICATE +EXPIRES +RENEWAL +FINGERPRINT\nCA +\d{4}-/);
  t.match(JSON.parse(json.stdout), {
    phase: "steady",
    caBundle: "not installed",
    bundle: [casOf(after)[0]?.fingerprint256],
    serving: { names: /DNS:ksvm-webhook.ksvm-certs.svc, DNS:ksvm-webhook.ksvm-certs.svc.cluster.local/ },
  });
  const output = [again, rotated, text, json].map(({ stdout, stderr }) => stdout + stderr).join("");
  const lines = [...keyLinesOf(before), ...keyLinesOf(after)];
  t.ok(lines.length > 80);
  t.same(
    lines.filter((line) => output.includes(line)),
    [],
  );
});

await t.test("rotate --now of two at once is one rotation", async (t) => {
  const results = await Promise.all([certs("rotate", ["--now"]), certs("rotate", ["--now"])]);
  for (const { code, stderr } of results) t.equal(code, 0, stderr);
  const output = results.map(({ stdout }) => stdout).join("");
  t.equal(output.match(/added a new CA to the bundle/g)?.length, 1, output);
  t.equal(casOf(await readTheSecret(cluster)).length, 1);
});

function patch(data: Record<string, string | null>): Promise<unknown> {
  return api.patch(SECRETS, { namespace: NAMESPACE, name: SECRET }, { type: MERGE_PATCH, body: { data } });
}

await t.test("what is missing or broken in the Secret is replaced", async (t) => {
  await patch({ "tls.key": Buffer.from("nonsense").toString("base64") });
  t.match((await certs("ensure")).stdout, /renewed the serving certificate: the serving certificate is missing/);
  await patch({ "ca.key": null });
  t.match(
    (await certs("rotate")).stdout,
    /added a new CA to the bundle: the CA's key is missing(.|\n)*dropped the old CA/,
  );
  await patch({ "ca.key": null, "ca.crt": null });
  t.match((await certs("ensure")).stdout, /created a CA and a serving certificate/);
  t.equal(casOf(await readTheSecret(cluster)).length, 1);
});

await t.test("a Secret of another owner is refused in one line and left alone", async (t) => {
  const data = { "tls.crt": "YQ==", "tls.key": "YQ==" };
  const base = { apiVersion: "v1", kind: "Secret" };
  const foreign = { ...base, type: "kubernetes.io/tls", metadata: { namespace: NAMESPACE, name: "foreign" }, data };
  const typed = { ...base, type: "example.com/own", metadata: { namespace: NAMESPACE, name: "typed" } };
  const words = {
    foreign: /another owner filled it/,
    typed: /its type is example.com\/own and must be Opaque or kubernetes.io\/tls/,
  };
  for (const secret of [foreign, typed]) {
    const { name } = secret.metadata;
    const { uid } = (await api.create<SecretObject>(SECRETS, secret)).metadata;
    const { code, stdout, stderr } = await certs("ensure", [], { secret: name });
    t.equal(code, 1);
    t.equal(stdout, "");
    t.match(stderr, words[name as keyof typeof words]);
    t.match(stderr, /^error: [^\n]+\[CertificateSecretUnusable\]\n$/);
    t.equal((await readTheSecret(cluster, name)).metadata.uid, uid);
  }
  const empty = {
    ...foreign,
    metadata: { namespace: NAMESPACE, name: "empty" },
    data: { "tls.crt": "", "tls.key": "" },
  };
  await api.create(SECRETS, empty);
  t.match((await certs("ensure", [], { secret: "empty" })).stdout, /created a CA/, "an empty one is filled");
  t.match(await certs("status", [], { secret: "nowhere" }), { code: 1, stderr: /Cannot find Secret .+\[NotFound\]/ });
  t.match(await certs("ensure", ["--serving-lifetime", "5000h"]), { code: 2, stderr: /must fit into.*\[Usage\]/ });
  const nowhere = await cluster.ksvm(["certs", "ensure", "--namespace", "nowhere"]);
  t.match(nowhere, { code: 1, stderr: /^error: [^\n]*namespaces "nowhere" not found \[NotFound\]\n$/ });
});

await t.test("ensure makes the serving certificate valid for the host of --webhook-url", async (t) => {
  const secret = "by-url";
  t.match(await certs("ensure", [], { secret }), { code: 0 });
  const isValidFor = async (name: string): Promise<boolean> =>
    new X509Certificate(decoded(await readTheSecret(cluster, secret), "tls.crt")).checkHost(name) !== undefined;
  t.notOk(await isValidFor("hooks.example"), "by itself");
  t.match(await certs("ensure", ["--webhook-url=https://hooks.example:9443/validate"], { secret }), { code: 0 });
  t.ok(await isValidFor("hooks.example"));
  t.ok(await isValidFor("localhost"), "beside --extra-names");
});

await t.test("F30: a server that starts without a Secret becomes ready without a restart", async (t) => {
  // Nothing but the watch can tell it within the time of this test.
  const webhook = await serveFromSecret(t, cluster, { secret: "later", resyncMs: 3_600_000 });
  t.equal(webhook.certificate.unusable(), "there is no serving certificate yet");
  await ensure(cluster, { settings: { ...SETTINGS, secret: "later" } });
  await eventually(async () => webhook.certificate.unusable() === undefined, "it has one");
});

await t.test(
  "keepCertificates() ends a rotation that a user began, step by step, and ends with its signal",
  async (t) => {
    const settings = { ...SETTINGS, secret: "kept" };
    await ensure(cluster, { settings });
    t.match(
      await ensure(cluster, { settings, rotateNow: true }),
      { state: "waiting" },
      "it is begun, and goes no further",
    );
    const abort = new AbortController();
    const steps: string[] = [];
    const ended = keepCertificates({
      settings,
      client: api,
      findApiServers: async () => ({ mode: "each", clients: [api] }),
      clock: systemClock,
      retrier: new Retrier({ clock: systemClock, random: Math.random, maxIdleMs: 30_000 }),
      logger: pino({ level: "silent" }),
      signal: abort.signal,
      onStep: (text) => steps.push(text),
      intervalMs: 300,
    });
    await eventually(async () => steps.includes("dropped the old CA from the bundle"), "the rotation is over");
    t.same(steps.slice(0, 1), ["issued the serving certificate from the new CA"]);
    abort.abort(new Error("enough"));
    await ended;
  },
);

await t.test(
  "F32: a rotation needs the Secret and the webhook configuration alone, whatever else is broken",
  async (t) => {
    // A CRD of ours whose conversion is broken.
    const kind = new TestKind("broken");
    const conversion = await serveConversion(t);
    await cluster.createStale(kind, 3, { conversion: conversionBy(conversion) });
    conversion.setDown(true);
    // Not a list: the API server's cache may hold what was converted before.
    const read = api.get(kind.resource("v1"), { namespace: "default", name: "w0" });
    await t.rejects(
      read,
      { status: 500, message: /conversion webhook/ },
      "negative control: its objects cannot be read",
    );
    await allowCertificateWork();
    const kubeconfig = controlPlane.kubeconfigFor("certs");
    const options = { secret: "scoped", kubeconfig };
    await eventually(async () => (await certs("ensure", [], options)).code === 0, "RBAC is in force");
    const webhook = await serveFromSecret(t, cluster, { secret: "scoped" });
    await webhook.register(caBundleOf(await readTheSecret(cluster, "scoped")) ?? "");
    const { code, stdout, stderr } = await certs("rotate", ["--now", "--log-level", "info"], options);
    t.equal(code, 0, stderr);
    t.match(stdout, /dropped the old CA/);
    t.match(stderr, /only the dwell time stands for them/);
    t.notMatch(stderr, kind.name);
  },
);

async function allowCertificateWork(): Promise<void> {
  const rbac = { group: "rbac.authorization.k8s.io", version: "v1" };
  const base = { apiVersion: "rbac.authorization.k8s.io/v1" };
  const names = { resourceNames: ["scoped"] };
  const subjects = [{ kind: "User", name: "certs", apiGroup: rbac.group }];
  const namespace = NAMESPACE;
  await api.create(
    { ...rbac, resource: "roles" },
    {
      ...base,
      kind: "Role",
      metadata: { name: "certs", namespace },
      rules: [
        { apiGroups: [""], resources: ["secrets"], verbs: ["get", "update"], ...names },
        // A create cannot be allowed by name.
        { apiGroups: [""], resources: ["secrets"], verbs: ["create"] },
      ],
    },
  );
  await api.create(
    { ...rbac, resource: "rolebindings" },
    {
      ...base,
      kind: "RoleBinding",
      metadata: { name: "certs", namespace },
      roleRef: { apiGroup: rbac.group, kind: "Role", name: "certs" },
      subjects,
    },
  );
  await api.create(
    { ...rbac, resource: "clusterroles" },
    {
      ...base,
      kind: "ClusterRole",
      metadata: { name: "certs" },
      rules: [
        {
          apiGroups: [WEBHOOK_CONFIGURATIONS.group],
          resources: [WEBHOOK_CONFIGURATIONS.resource],
          resourceNames: [WEBHOOK_NAME],
          verbs: ["get", "patch"],
        },
      ],
    },
  );
  await api.create(
    { ...rbac, resource: "clusterrolebindings" },
    {
      ...base,
      kind: "ClusterRoleBinding",
      metadata: { name: "certs" },
      roleRef: { apiGroup: rbac.group, kind: "ClusterRole", name: "certs" },
      subjects,
    },
  );
}

await t.test("the configuration that is applied beside the caBundle keeps it", async (t) => {
  const { certPem } = await issueCa({ now: new Date(), lifetimeMs: 3_600_000 });
  const clientConfig = {
    url: `https://127.0.0.1:1${VALIDATE_PATH}`,
    caBundle: Buffer.from(certPem).toString("base64"),
  };
  const configuration = webhookConfigurationOf({ clientConfig });
  await api.create(WEBHOOK_CONFIGURATIONS, { ...configuration });
  t.teardown(() => api.delete(WEBHOOK_CONFIGURATIONS, configuration.metadata));
  t.match((await certs("status", ["-o", "json"])).stdout, /"caBundle": "differs"/);
  t.match((await certs("ensure")).stdout, /wrote the caBundle of webhook configuration "crd\.kube/);
  t.match((await certs("status", ["-o", "json"])).stdout, /"caBundle": "published"/);
  const stored = await api.get<{ webhooks: { clientConfig: { url: string; caBundle: string } }[] }>(
    WEBHOOK_CONFIGURATIONS,
    configuration.metadata,
  );
  t.equal(stored.webhooks[0]?.clientConfig.url, clientConfig.url);
  t.equal(stored.webhooks[0]?.clientConfig.caBundle, caBundleOf(await readTheSecret(cluster)));
});
