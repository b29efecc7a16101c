// Certificates that somebody else keeps: a Secret, as cert-manager's, and files. test/installed has cert-manager itself.
import { renameSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { X509Certificate } from "node:crypto";
import t from "tap";
import { issueCa, issueServing, type IssuedPair } from "../../src/certs/issue.ts";
import { WEBHOOK_NAME } from "../../src/freeze/rule.ts";
import { APPLY_PATCH, JSON_PATCH, type KubeObject, SECRETS, WEBHOOK_CONFIGURATIONS } from "../api-client.ts";
import { Cluster, eventually } from "./cluster.ts";
import { type Controller, startController, WebhookService } from "./controller.ts";
import { keepConnecting, servedAt } from "./handshakes.ts";
import { applyAll, NAMESPACE, overlayOf, pointWebhookAt, startAsServiceAccount } from "./installation.ts";
import { render } from "./kubectl.ts";
import { createFrozen, describeLoad, StorageChangeLoad, untilDenied } from "./storage-change-load.ts";

const HOUR_MS = 3_600_000;

const cluster = await Cluster.start(t);
const { api } = cluster;
await applyAll(api, await render(overlayOf(t, ["deploy/base", "deploy/components/certificate-secret"])));
const service = await WebhookService.start(t);
await pointWebhookAt(cluster, { url: `https://127.0.0.1:${service.port}/validate` });
const kubeconfig = await startAsServiceAccount(cluster, "storage-migrator");
const kind = await createFrozen(cluster, "frozen");
const [ca, otherCa] = (await Promise.all([1, 2].map(() => issueCa({ now: new Date(), lifetimeMs: 24 * HOUR_MS })))) as [
  IssuedPair,
  IssuedPair,
];

function issue(): Promise<IssuedPair> {
  return issueServing({
    ca,
    now: new Date(),
    lifetimeMs: HOUR_MS,
    dnsNames: ["localhost"],
    ipAddresses: ["127.0.0.1"],
  });
}

async function until(controller: Controller, status: number, text: RegExp): Promise<void> {
  const says = async (): Promise<boolean> => {
    const answer = await controller.health("/readyz");
    return answer.status === status && text.test(answer.text);
  };
  await eventually(says, `/readyz is ${status} and says ${text}`);
}

async function untilServed(pair: IssuedPair): Promise<void> {
  const { fingerprint256 } = new X509Certificate(pair.certPem);
  const isServed = async (): Promise<boolean> => (await servedAt(service.port)).fingerprint256 === fingerprint256;
  await eventually(isServed, "the new certificate is served");
}

function start(...flags: readonly string[]): Promise<Controller> {
  return startController(t, cluster, { flags, kubeconfig, service, until: "started" });
}

/** Writes the caBundle as cert-manager's cainjector does. */
function writeBundle({ certPem }: IssuedPair): Promise<unknown> {
  const value = Buffer.from(certPem).toString("base64");
  const body = [{ op: "add", path: "/webhooks/0/clientConfig/caBundle", value }];
  const options = { fieldManager: "another-program" };
  return api.patch(WEBHOOK_CONFIGURATIONS, { name: WEBHOOK_NAME }, { type: JSON_PATCH, body }, options);
}

/** Writes the Secret as cert-manager does. */
function writeSecret({ certPem, keyPem }: IssuedPair): Promise<unknown> {
  const metadata = { namespace: NAMESPACE, name: "ksvm-webhook-tls" };
  const stringData = { "tls.crt": certPem, "tls.key": keyPem, "ca.crt": ca.certPem };
  const body = { apiVersion: "v1", kind: "Secret", type: "kubernetes.io/tls", metadata, stringData };
  return api.patch(SECRETS, metadata, { type: APPLY_PATCH, body }, { fieldManager: "another-program", force: true });
}

await t.test(
  "a Secret of another program is waited for, and each renewal is served without losing a review",
  async (t) => {
    const controller = await start("--certificates=secret", "--cert-secret=ksvm-webhook-tls");
    await until(controller, 503, /there is no serving certificate yet/);
    t.equal((await controller.health("/livez")).status, 200, "a restart would repair nothing");
    t.match(controller.log(), /ksvm-webhook-tls/, "it says what it waits for");
    await writeSecret(await issue());
    await writeBundle(ca);
    await until(controller, 200, /./);

    await untilDenied(cluster, kind);
    const load = StorageChangeLoad.start(t, cluster, [kind], 20);
    const connections = keepConnecting(t, cluster, service.port);
    for (let renewals = 0; renewals < 3; renewals++) {
      const pair = await issue();
      await writeSecret(pair);
      await untilServed(pair);
    }
    const [report, { failures }] = await Promise.all([load.stop(), connections.stop()]);
    t.comment(describeLoad(report));
    t.same(report.others, [], "each review was answered");
    t.same(failures, [], "each connection was trusted");
    t.ok(report.denied > 0);
    const { metadata } = await api.get<KubeObject>(WEBHOOK_CONFIGURATIONS, { name: WEBHOOK_NAME });
    const owners = metadata.managedFields?.filter(({ fieldsV1 }) => JSON.stringify(fieldsV1).includes("f:caBundle"));
    t.same(
      owners?.map(({ manager }) => manager),
      ["another-program"],
      "the caBundle is left to its writer",
    );
    t.equal(await controller.stop(), 0);
    t.notMatch(controller.log(), /forbidden/i, "the rights of deploy/ are enough");
  },
);

await t.test("a replica with files is ready once API servers trust them, and serves what replaces them", async (t) => {
  await writeBundle(otherCa);
  const dir = t.testdir({});
  const writeFiles = ({ certPem, keyPem }: IssuedPair): void => {
    for (const [name, text] of [
      ["tls.key", keyPem],
      ["tls.crt", certPem],
    ] as const) {
      writeFileSync(join(dir, `${name}.new`), text);
      renameSync(join(dir, `${name}.new`), join(dir, name));
    }
  };
  const controller = await start("--certificates=files", `--cert-dir=${dir}`);
  await until(controller, 503, /there is no serving certificate yet/);
  writeFiles(await issue());
  await until(controller, 503, /caBundle.*does not trust/);
  await writeBundle(ca);
  await until(controller, 200, /./);
  await untilDenied(cluster, kind);
  const next = await issue();
  writeFiles(next);
  await untilServed(next);
  await untilDenied(cluster, kind);
  t.equal(await controller.stop(), 0);
});
