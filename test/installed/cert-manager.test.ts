import { createPublicKey, X509Certificate } from "node:crypto";
import t from "tap";
import { storedVersionsOf } from "../crd.ts";
import { findConfiguration, publishedBundleOf } from "../../src/certs/ca-bundle.ts";
import { decoded, KEYS } from "../../src/certs/secret-contents.ts";
import { readSecret } from "../../src/certs/secret-store.ts";
import { WEBHOOK_NAME } from "../../src/freeze/rule.ts";
import { CRDS, type NewObject, objectPath } from "../api-client.ts";
import { Cluster, eventually } from "../integration/cluster.ts";
import { TestKind } from "../integration/crd-fixture.ts";
import { startController } from "../integration/controller.ts";
import { keepConnecting, servedAt } from "../integration/handshakes.ts";
import { applyAll, NAMESPACE, startAsServiceAccount } from "../integration/installation.ts";
import { render } from "../integration/kubectl.ts";
import { createFrozen, describeLoad, StorageChangeLoad, untilDenied } from "../integration/storage-change-load.ts";
import { startProgram } from "../processes/program.ts";
import { ensureCertManager } from "./cert-manager.ts";

// deploy/overlays/cert-manager with cert-manager's own controllers. Nothing here runs pods or leads to Services: replica and
// controllers are processes, and API servers call the replica on loopback, for which the certificate is valid as well.

// What starts in one of the tests runs on in the next ones.
const parent = t;
const certManager = await ensureCertManager();
const cluster = await Cluster.start(t);
const { api } = cluster;
const { signal } = new AbortController();

const CERTIFICATES = { group: "cert-manager.io", version: "v1", resource: "certificates" };

interface Certificate {
  readonly status?: { readonly revision?: number; readonly conditions?: readonly { type: string; status: string }[] };
}

function onLoopback(document: NewObject): NewObject {
  if (document.kind !== "Certificate" || document.metadata.name !== "ksvm-webhook") return document;
  const { spec } = document as unknown as { spec: object };
  return { ...document, spec: { ...spec, ipAddresses: ["127.0.0.1"] } };
}

async function isServed(resource: typeof CERTIFICATES): Promise<boolean> {
  return api.listMetadata(resource, { limit: 1 }).then(
    () => true,
    () => false,
  );
}

for (const crd of certManager.crds) await api.create(CRDS, crd);
for (const resource of ["certificates", "issuers", "certificaterequests"]) {
  await eventually(() => isServed({ ...CERTIFICATES, resource }), `${resource} are served`, 30_000);
}
const documents = (await render("deploy/overlays/cert-manager")).map(onLoopback);
await applyAll(api, documents);

async function textIn(secret: string, key: (typeof KEYS)[keyof typeof KEYS]): Promise<string> {
  const found = await readSecret(api.kube, { namespace: NAMESPACE, name: secret }, signal);
  return found.secret === undefined ? "" : decoded(found.secret, key);
}

const caOf = (): Promise<string> => textIn("ksvm-webhook-ca", KEYS.certificate);

async function publishedBundle(): Promise<string> {
  const bundle = publishedBundleOf(await findConfiguration(api.kube, WEBHOOK_NAME, signal)) ?? "";
  return Buffer.from(bundle, "base64").toString("utf8");
}

/** Renews a certificate at once, as `cmctl renew` does, and waits until cert-manager has done so. */
async function renew(name: string): Promise<void> {
  const ref = { namespace: NAMESPACE, name };
  const { status } = await api.get<Certificate>(CERTIFICATES, ref);
  const lastTransitionTime = new Date().toISOString().replace(/\.\d+/, "");
  const why = {
    reason: "ManuallyTriggered",
    message: "Certificate re-issuance manually triggered",
    lastTransitionTime,
  };
  const value = { type: "Issuing", status: "True", ...why };
  await api.request({
    method: "PATCH",
    path: `${objectPath(CERTIFICATES, ref)}/status`,
    contentType: "application/json-patch+json",
    body: [{ op: "add", path: "/status/conditions/-", value }],
  });
  const isRenewed = async (): Promise<boolean> => {
    const now = (await api.get<Certificate>(CERTIFICATES, ref)).status;
    const isIssuing = now?.conditions?.some((condition) => condition.type === "Issuing" && condition.status === "True");
    return isIssuing !== true && (now?.revision ?? 0) > (status?.revision ?? 0);
  };
  await eventually(isRenewed, `cert-manager renews ${name}`, 60_000);
}

/** Renews the serving certificate. @returns milliseconds from the moment when the Secret has it until it is served */
async function renewServing(port: number): Promise<number> {
  const before = await textIn("ksvm-webhook-tls", KEYS.certificate);
  const renewed = renew("ksvm-webhook");
  const isWritten = async (): Promise<boolean> => (await textIn("ksvm-webhook-tls", KEYS.certificate)) !== before;
  await eventually(isWritten, "the Secret has another certificate", 60_000);
  const writtenAt = performance.now();
  const { fingerprint256 } = new X509Certificate(await textIn("ksvm-webhook-tls", KEYS.certificate));
  await eventually(async () => (await servedAt(port)).fingerprint256 === fingerprint256, "it is served", 60_000);
  const tookMs = performance.now() - writtenAt;
  await renewed;
  return tookMs;
}

function keyOf(certPem: string): string {
  return createPublicKey(certPem).export({ type: "spki", format: "pem" }).toString();
}

interface Deployment {
  readonly spec: {
    readonly template: { readonly spec: { readonly containers: readonly { readonly args: string[] }[] } };
  };
}

const deployment = documents.find(({ kind }) => kind === "Deployment") as Deployment | undefined;
const args = deployment?.spec.template.spec.containers[0]?.args ?? [];
const kind = new TestKind("bycertmanager");
const replica = await startController(t, cluster, {
  flags: ["--trigger=on", `--trigger-only-resources=${kind.name}`, ...args.filter((arg) => arg.startsWith("--cert"))],
  kubeconfig: await startAsServiceAccount(cluster, "storage-migrator"),
  until: "started",
});
const port = Number(new URL(replica.webhookUrl).port);

await t.test("before cert-manager is there a replica is alive and not ready, and says why once", async (t) => {
  await eventually(async () => (await replica.health("/livez")).status === 200, "it is alive", 30_000);
  const waiting = (): number => replica.log().split("Waiting for the Secret of the serving certificate").length - 1;
  await eventually(async () => waiting() > 0, `it says what it waits for:\n${replica.log()}`);
  const { status, text } = await replica.health("/readyz");
  t.equal(status, 503);
  t.match(text, /there is no serving certificate yet/);
  t.equal(waiting(), 1);
});

await t.test("it becomes ready once cert-manager has written Secret and caBundle", async (t) => {
  const programs = ["controller", "cainjector"].map((name) =>
    startProgram(parent, certManager.program, ["--kubeconfig", cluster.kubeconfig, name]),
  );
  const isReady = async (): Promise<boolean> => {
    const ended = programs.find(({ isRunning }) => !isRunning);
    if (ended !== undefined) throw new Error(`cert-manager ended:\n${ended.stderr.slice(-2_000)}`);
    return (await replica.health("/readyz")).status === 200;
  };
  await eventually(isReady, `the replica is ready:\n${replica.log()}`, 120_000);
  t.equal(await publishedBundle(), await caOf());
});

await t.test("renewals of the serving certificate and of the CA under load lose no review", async (t) => {
  const frozen = await createFrozen(cluster, "certmanager");
  await untilDenied(cluster, frozen);
  const load = StorageChangeLoad.start(t, cluster, [frozen], 50);
  const connections = keepConnecting(t, cluster, port);
  const tookMs = [await renewServing(port), await renewServing(port)];
  const oldCa = await caOf();
  await renew("ksvm-ca");
  const newCa = await caOf();
  t.not(newCa, oldCa);
  t.equal(keyOf(newCa), keyOf(oldCa), "the CA keeps its key");
  tookMs.push(await renewServing(port));
  // The cainjector adds it to the old one.
  await eventually(async () => (await publishedBundle()).includes(newCa), "the new CA is in the caBundle", 60_000);
  tookMs.push(await renewServing(port));
  const report = await load.stop();
  const { failures, handshakes } = await connections.stop();
  const delays = tookMs.map((ms) => Math.round(ms)).join(", ");
  console.error(
    `  ${describeLoad(report)}; ${handshakes} handshakes; served after the Secret was written: ${delays} ms`,
  );
  t.same(report.others, [], "every review was answered");
  t.same(failures, [], "every connection was trusted");
  t.ok(report.denied > 100 && handshakes > 20);
  const reloads = (await replica.health("/metrics")).text.match(/^ksvm_certificate_reloads_total.*$/gm);
  const wanted = ["loaded", "rejected"].map((result) => `ksvm_certificate_reloads_total{result="${result}"}`);
  t.same(reloads, [`${wanted[0]} 5`, `${wanted[1]} 0`], replica.log());
});

await t.test("a CRD is migrated with these certificates", async (t) => {
  await cluster.createStale(kind, 10);
  const isPruned = async (): Promise<boolean> => storedVersionsOf(await cluster.crd(kind)).join() === "v1";
  await eventually(isPruned, `storedVersions is pruned:\n${replica.log()}`, 180_000);
  t.same(await cluster.storedAs(kind), { v1: 10 });
  t.notMatch(replica.log(), /forbidden/i, "RBAC refused nothing");
  t.equal(await replica.stop(), 0);
});
