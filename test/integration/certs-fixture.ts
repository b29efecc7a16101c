import { createServer } from "node:https";
import type { AddressInfo } from "node:net";
import { pino } from "pino";
import type { Test } from "tap";
import { WEBHOOK_NAME } from "../../src/api/names.ts";
import { caBundleOf } from "../../src/certs/ca-bundle.ts";
import {
  type CertificateSettings,
  ensureCertificates,
  type EnsureOptions,
  type EnsureResult,
} from "../../src/certs/ensure.ts";
import type { SecretObject } from "../../src/certs/secret-contents.ts";
import { SecretSource } from "../../src/certs/secret-source.ts";
import { systemClock } from "../../src/clock.ts";
import type { ApiClient } from "../../src/kube/client.ts";
import { SECRETS, WEBHOOK_CONFIGURATIONS } from "../../src/kube/resources.ts";
import { Retrier } from "../../src/migrator/retrier.ts";
import { buildWebhookApp, VALIDATE_PATH } from "../../src/webhook/app.ts";
import { ServingCertificate } from "../../src/webhook/serving-certificate.ts";
import { webhookConfigurationOf } from "../../src/webhook/webhook-configuration.ts";
import { type Cluster, eventually } from "./cluster.ts";

export const NAMESPACE = "ksvm-certs";
export const SECRET = "ksvm-webhook-tls";
const HOUR_MS = 3_600_000;

/** Settings whose waits fit a test. */
export const SETTINGS: CertificateSettings = {
  namespace: NAMESPACE,
  service: "ksvm-webhook",
  // The webhook listens on this machine.
  extraNames: ["localhost", "127.0.0.1"],
  secret: SECRET,
  webhookConfiguration: WEBHOOK_NAME,
  caLifetimeMs: 24 * HOUR_MS,
  servingLifetimeMs: 6 * HOUR_MS,
  renewBefore: 1 / 3,
  apiServerDwellMs: 1_000,
  replicaDwellMs: 1_000,
  timeoutMs: 60_000,
};

/** The flags that go with {@link SETTINGS}. */
export const FLAGS =
  `--namespace ${NAMESPACE} --extra-names localhost,127.0.0.1 --apiserver-dwell 1s --replica-dwell 1s --timeout 60s`.split(
    " ",
  );

export async function createNamespace(api: ApiClient, name = NAMESPACE): Promise<void> {
  const namespaces = { group: "", version: "v1", resource: "namespaces" };
  await api.create(namespaces, { apiVersion: "v1", kind: "Namespace", metadata: { name } });
}

export function readTheSecret({ api }: Cluster, name = SECRET): Promise<SecretObject> {
  return api.get<SecretObject>(SECRETS, { namespace: NAMESPACE, name });
}

/** Runs `ensureCertificates()` as the admin; every API server is asked by itself. */
export function ensure(cluster: Cluster, changes: Partial<EnsureOptions> = {}): Promise<EnsureResult> {
  return ensureCertificates({
    settings: SETTINGS,
    client: cluster.api,
    findApiServers: async () => ({ mode: "each", clients: [cluster.api] }),
    clock: systemClock,
    retrier: new Retrier({ clock: systemClock, random: Math.random, maxIdleMs: 30_000 }),
    logger: pino({ level: "silent" }),
    signal: new AbortController().signal,
    ...changes,
  });
}

/** A webhook that serves from a Secret. */
export interface SecretWebhook {
  readonly certificate: ServingCertificate;
  readonly port: number;
  /** How many reviews it denied. */
  denials(): number;
  /** How many TLS handshakes it ended well. */
  handshakes(): number;
  /** Registers it with the API servers, with this caBundle. */
  register(caBundle: string): Promise<void>;
}

/**
 * Serves the webhook on this machine from a Secret that may not be there yet. Every review comes on a connection of its
 * own: with connections that are kept, API servers would hardly ever look at the certificate. It ends with the test.
 */
export async function serveFromSecret(t: Test, cluster: Cluster, secret = SECRET): Promise<SecretWebhook> {
  let denials = 0;
  let handshakes = 0;
  const certificate = new ServingCertificate();
  const server = createServer({ minVersion: "TLSv1.2" });
  server.maxRequestsPerSocket = 1;
  server.on("secureConnection", () => handshakes++);
  certificate.subscribe((outcome) => {
    if (outcome.result === "loaded") server.setSecureContext({ cert: outcome.pair.certPem, key: outcome.pair.keyPem });
  });
  const app = buildWebhookApp({
    serverFactory: (handler) => server.on("request", handler),
    onVerdict: (verdict) => {
      denials += verdict.allowed ? 0 : 1;
    },
  });
  await app.listen({ host: "127.0.0.1", port: 0 });
  const abort = new AbortController();
  const client = cluster.clientFor("admin");
  const ref = { namespace: NAMESPACE, name: secret };
  const source = new SecretSource({ certificate, client, ref, logger: pino({ level: "silent" }) });
  const ended = source.run(abort.signal);
  t.teardown(async () => {
    abort.abort();
    await ended;
    await client.transport.close();
    server.closeAllConnections();
    await app.close();
  });
  const { port } = server.address() as AddressInfo;
  return {
    certificate,
    port,
    denials: () => denials,
    handshakes: () => handshakes,
    register: async (caBundle) => {
      const url = `https://127.0.0.1:${port}${VALIDATE_PATH}`;
      const configuration = webhookConfigurationOf({ clientConfig: { url, caBundle } });
      await cluster.api.create(WEBHOOK_CONFIGURATIONS, { ...configuration });
      t.teardown(() => cluster.api.delete(WEBHOOK_CONFIGURATIONS, configuration.metadata));
    },
  };
}

/** Own certificates, served and registered: what a cluster has after installation. */
export async function installOwn(t: Test, cluster: Cluster): Promise<SecretWebhook> {
  await ensure(cluster);
  const webhook = await serveFromSecret(t, cluster);
  await eventually(async () => webhook.certificate.current !== undefined, "the webhook has a certificate");
  await webhook.register(caBundleOf(await readTheSecret(cluster)) ?? "");
  return webhook;
}
