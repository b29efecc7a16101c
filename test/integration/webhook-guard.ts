import { pino } from "pino";
import { issueSelfSigned } from "../../src/certs/self-signed.ts";
import { WEBHOOK_CONFIGURATIONS } from "../../src/kube/resources.ts";
import { VALIDATE_PATH } from "../../src/webhook/app.ts";
import { startWebhookServer } from "../../src/webhook/server.ts";
import { webhookConfigurationOf } from "../../src/webhook/webhook-configuration.ts";
import type { Cluster } from "./cluster.ts";

/** The webhook in force on a cluster. */
export interface InstalledWebhook {
  /** How many reviews it denied. */
  denials(): number;
  uninstall(): Promise<void>;
}

/** Serves the webhook and registers it with the API server. */
export async function installWebhook({ api }: Cluster): Promise<InstalledWebhook> {
  let denials = 0;
  const tls = await issueSelfSigned({
    dnsNames: ["localhost"],
    ipAddresses: ["127.0.0.1"],
    now: new Date(),
    lifetimeMs: 3_600_000,
  });
  const server = await startWebhookServer({
    host: "127.0.0.1",
    port: 0,
    tls,
    logger: pino({ level: "silent" }),
    onVerdict: (verdict) => {
      denials += verdict.allowed ? 0 : 1;
    },
  });
  const caBundle = Buffer.from(tls.caPem).toString("base64");
  const configuration = webhookConfigurationOf({ clientConfig: { url: `${server.url}${VALIDATE_PATH}`, caBundle } });
  await api.create(WEBHOOK_CONFIGURATIONS, { ...configuration });
  return {
    denials: () => denials,
    uninstall: async () => {
      await api.delete(WEBHOOK_CONFIGURATIONS, configuration.metadata);
      await server.close();
    },
  };
}
