import { createServer } from "node:https";
import type { AddressInfo } from "node:net";
import { pino } from "pino";
import type { Test } from "tap";
import { WEBHOOK_NAME } from "../../src/api/names.ts";
import { caBundleOf } from "../../src/certs/ca-bundle.ts";
import { ensureCertificates } from "../../src/certs/ensure.ts";
import type { CertificateSettings, EnsureOptions, EnsureResult } from "../../src/certs/ensure-options.ts";
import type { SecretObject } from "../../src/certs/secret-contents.ts";
import { RESYNC_MS, SecretSource } from "../../src/certs/secret-source.ts";
import { systemClock } from "../../src/clock.ts";
import type { ApiClient } from "../../src/kube/client.ts";
import { SECRETS, WEBHOOK_CONFIGURATIONS } from "../../src/kube/resources.ts";
import { Retrier } from "../../src/retry/retrier.ts";
import { Metrics } from "../../src/observability/metrics.ts";
import { buildWebhookApp, VALIDATE_PATH } from "../../src/webhook/app.ts";
import { startWebhookServer } from "../../src/webhook/server.ts";
import { ServingCertificate } from "../../src/webhook/serving-certificate.ts";
import { webhookConfigurationOf } from "../../src/webhook/webhook-configuration.ts";
import { type Cluster, eventually } from "./cluster.ts";

export const NAMESPACE = "ksvm-certs";
export const SECRET = "ksvm-webhook-certificates";
const HOUR_MS = 3_600_000;
const SILENT = pino({ level: "silent" });

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
    logger: SILENT,
    signal: new AbortController().signal,
    ...changes,
  });
}

/** A webhook that serves from a Secret. */
export interface SecretWebhook {
  readonly certificate: ServingCertificate;
  readonly port: number;
  /** How many reviews it denied, by its own counter. */
  denials(): Promise<number>;
  /** Registers it with the API servers, with this caBundle. */
  register(caBundle: string): Promise<void>;
}

interface Serving {
  readonly port: number;
  close(): Promise<void>;
}

/** Serves the webhook on this machine from a Secret that may not be there yet. It ends with the test. */
export async function serveFromSecret(
  t: Test,
  cluster: Cluster,
  options: {
    /** @default {@link SECRET} */
    readonly secret?: string;
    /** @default the server as it is installed */
    readonly serve?: (certificate: ServingCertificate, metrics: Metrics) => Promise<Serving>;
    /** Milliseconds between two looks at the Secret beside its watch. @default as installed */
    readonly resyncMs?: number;
  } = {},
): Promise<SecretWebhook> {
  const { secret: name = SECRET, serve = serveAsInstalled, resyncMs = RESYNC_MS } = options;
  const certificate = new ServingCertificate();
  const metrics = new Metrics();
  const server = await serve(certificate, metrics);
  const abort = new AbortController();
  const client = cluster.clientFor("admin");
  const source = new SecretSource({
    certificate,
    client,
    ref: { namespace: NAMESPACE, name },
    logger: SILENT,
    resyncMs,
  });
  const ended = source.run(abort.signal);
  t.teardown(async () => {
    abort.abort();
    await ended;
    await client.transport.close();
    await server.close();
  });
  return {
    certificate,
    port: server.port,
    denials: async () => {
      const { values } = await metrics.webhookReviews.get();
      return values.find(({ labels }) => labels.decision === "denied")?.value ?? 0;
    },
    register: async (caBundle) => {
      const url = `https://127.0.0.1:${server.port}${VALIDATE_PATH}`;
      // What is looked for are answers that never come, not those that a busy machine takes long for.
      const configuration = webhookConfigurationOf({ clientConfig: { url, caBundle }, timeoutSeconds: 30 });
      await cluster.api.create(WEBHOOK_CONFIGURATIONS, { ...configuration });
      t.teardown(() => cluster.api.delete(WEBHOOK_CONFIGURATIONS, configuration.metadata));
    },
  };
}

function serveAsInstalled(certificate: ServingCertificate, metrics: Metrics): Promise<Serving> {
  return startWebhookServer({ host: "127.0.0.1", port: 0, certificate, metrics, logger: SILENT, drainMs: 0 });
}

/**
 * The same with a connection of its own for every review: with connections that are kept, API servers hardly ever look at
 * the certificate.
 */
export function serveOnFreshConnections(onHandshake: () => void) {
  return async (certificate: ServingCertificate, metrics: Metrics): Promise<Serving> => {
    const server = createServer({ minVersion: "TLSv1.2" });
    server.maxRequestsPerSocket = 1;
    server.on("secureConnection", onHandshake);
    certificate.subscribe((outcome) => {
      if (outcome.result === "loaded") {
        server.setSecureContext({ cert: outcome.pair.certPem, key: outcome.pair.keyPem });
      }
    });
    const app = buildWebhookApp({ metrics, serverFactory: (handler) => server.on("request", handler) });
    await app.listen({ host: "127.0.0.1", port: 0 });
    const { port } = server.address() as AddressInfo;
    const close = async (): Promise<void> => {
      server.closeAllConnections();
      await app.close();
    };
    return { port, close };
  };
}

/** Own certificates, served and registered: what a cluster has after installation. */
export async function installOwn(
  t: Test,
  cluster: Cluster,
  options: Parameters<typeof serveFromSecret>[2] = {},
): Promise<SecretWebhook> {
  await ensure(cluster);
  const webhook = await serveFromSecret(t, cluster, options);
  await eventually(async () => webhook.certificate.current !== undefined, "the webhook has a certificate");
  await webhook.register(caBundleOf(await readTheSecret(cluster)) ?? "");
  return webhook;
}
