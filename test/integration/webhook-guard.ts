import { pino } from "pino";
import { WEBHOOK_CONFIGURATIONS } from "../api-client.ts";
import { Metrics } from "../../src/observability/metrics.ts";
import { VALIDATE_PATH } from "../../src/webhook/app.ts";
import { startWebhookServer } from "../../src/webhook/server.ts";
import { webhookConfigurationOf } from "../../src/webhook/webhook-configuration.ts";
import { counted } from "../observability/counted.ts";
import { issueServing } from "../webhook/issue-serving.ts";
import type { Cluster } from "./cluster.ts";

/** The webhook in force on a cluster. */
export interface InstalledWebhook {
  /** How many reviews it denied. */
  denials(): Promise<number>;
  uninstall(): Promise<void>;
}

/** Serves the webhook and registers it with the API server. */
export async function installWebhook({ api }: Cluster): Promise<InstalledWebhook> {
  const metrics = new Metrics();
  const { caBundle, certificate } = await issueServing();
  const server = await startWebhookServer({
    host: "127.0.0.1",
    port: 0,
    certificate,
    metrics,
    logger: pino({ level: "silent" }),
    drainMs: 0,
  });
  const configuration = webhookConfigurationOf({ clientConfig: { url: `${server.url}${VALIDATE_PATH}`, caBundle } });
  await api.create(WEBHOOK_CONFIGURATIONS, { ...configuration });
  return {
    denials: async () => (await counted(metrics.webhookReviews, "decision"))["denied"] ?? 0,
    uninstall: async () => {
      await api.delete(WEBHOOK_CONFIGURATIONS, configuration.metadata);
      await server.close();
    },
  };
}
