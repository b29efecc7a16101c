import { X509Certificate } from "node:crypto";
import { connect } from "node:tls";
import t from "tap";
import { caBundleOf } from "../../src/certs/ca-bundle.ts";
import { issueCa, issueServing, type IssuedPair } from "../../src/certs/issue.ts";
import { WEBHOOK_NAME } from "../../src/api/names.ts";
import type { KubeObject } from "../../src/kube/client.ts";
import { APPLY_PATCH, SECRETS, WEBHOOK_CONFIGURATIONS } from "../../src/kube/resources.ts";
import { Cluster, eventually } from "./cluster.ts";
import { applyAll, NAMESPACE, overlayOf } from "./installation.ts";
import { render } from "./kubectl.ts";
import { spawnFromOverlay } from "./overlay-replica.ts";
import { createFrozen, describeLoad, StorageChangeLoad, untilDenied } from "./storage-change-load.ts";

// The program that keeps the Secret is this test. test/installed/cert-manager.test.ts has the real cert-manager.

const cluster = await Cluster.start(t);
const { api } = cluster;
const documents = await render(overlayOf(t, ["deploy/base", "deploy/components/certificate-secret"]));
await applyAll(api, documents);

const HOUR_MS = 3_600_000;
const ca = await issueCa({ now: new Date(), lifetimeMs: 24 * HOUR_MS });

function issue(): Promise<IssuedPair> {
  const names = { dnsNames: ["ksvm-webhook.kube-storage-migration.svc"], ipAddresses: ["127.0.0.1"] };
  return issueServing({ ca, now: new Date(), lifetimeMs: HOUR_MS, ...names });
}

/** Writes the Secret as cert-manager does. */
async function writeSecret({ certPem, keyPem }: IssuedPair): Promise<void> {
  const name = "ksvm-webhook-tls";
  const data = Object.entries({ "tls.crt": certPem, "tls.key": keyPem, "ca.crt": ca.certPem });
  const body = {
    apiVersion: "v1",
    kind: "Secret",
    type: "kubernetes.io/tls",
    metadata: { namespace: NAMESPACE, name },
    data: Object.fromEntries(data.map(([key, text]) => [key, btoa(text)])),
  };
  await api.patch(SECRETS, body.metadata, { type: APPLY_PATCH, body }, { fieldManager: "another-program" });
}

/** Writes the caBundle as its cainjector does. */
async function writeBundle(): Promise<void> {
  const clientConfig = { caBundle: caBundleOf({ data: { "ca.crt": btoa(ca.certPem) } }) };
  const body = {
    apiVersion: "admissionregistration.k8s.io/v1",
    kind: "ValidatingWebhookConfiguration",
    metadata: { name: WEBHOOK_NAME },
    webhooks: [{ name: WEBHOOK_NAME, clientConfig }],
  };
  const options = { fieldManager: "another-program", force: true };
  await api.patch(WEBHOOK_CONFIGURATIONS, body.metadata, { type: APPLY_PATCH, body }, options);
}

function servedAt(port: number): Promise<string> {
  return new Promise((resolve, reject) => {
    const socket = connect({ host: "127.0.0.1", port, ca: ca.certPem }, () => {
      resolve(socket.getPeerX509Certificate()?.fingerprint256 ?? "");
      socket.destroy();
    });
    socket.on("error", reject);
  });
}

await t.test(
  "a replica waits for a Secret that another program creates, and serves each renewal at once",
  async (t) => {
    const { replica, port } = await spawnFromOverlay(t, cluster, documents);
    await eventually(async () => (await replica.health("/livez")).status === 200, "it is alive", 30_000);
    const waiting = (): readonly string[] =>
      replica
        .log()
        .split("\n")
        .filter((line) => line.includes("Waiting for the Secret of the serving certificate"));
    await eventually(async () => waiting().length > 0, `it says what it waits for:\n${replica.log()}`);
    t.match(JSON.parse(waiting()[0] ?? ""), { secret: "kube-storage-migration/ksvm-webhook-tls" });
    const { status, text } = await replica.health("/readyz");
    t.equal(status, 503);
    t.match(text, /there is no serving certificate yet/);

    await writeSecret(await issue());
    await writeBundle();
    await eventually(async () => (await replica.health("/readyz")).status === 200, `it is ready:\n${replica.log()}`);
    t.equal(waiting().length, 1, "once");

    const kind = await createFrozen(cluster, "foreignsecret");
    await untilDenied(cluster, kind);
    const load = StorageChangeLoad.start(t, cluster, [kind], 20);
    for (let renewals = 0; renewals < 3; renewals++) {
      const pair = await issue();
      await writeSecret(pair);
      const { fingerprint256 } = new X509Certificate(pair.certPem);
      await eventually(async () => (await servedAt(port)) === fingerprint256, "the new certificate is served");
    }
    const report = await load.stop();
    t.comment(describeLoad(report));
    t.same(report.others, [], "every review was answered");
    t.ok(report.denied > 0);
    t.notMatch(replica.log(), /forbidden/i, "RBAC refused nothing");
    const { metadata } = await api.get<KubeObject>(WEBHOOK_CONFIGURATIONS, { name: WEBHOOK_NAME });
    const owners = metadata.managedFields?.filter(({ fieldsV1 }) => JSON.stringify(fieldsV1).includes("f:caBundle"));
    t.same(
      owners?.map(({ manager }) => manager),
      ["another-program"],
      "the caBundle is left to its writer",
    );
    replica.kill("SIGTERM");
    t.equal(await replica.ended, 0);
  },
);
