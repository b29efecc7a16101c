import { pino } from "pino";
import { WEBHOOK_CONFIGURATIONS } from "../../src/old/kube/resources.ts";
import { Metrics } from "../../src/observability/metrics.ts";
import { VALIDATE_PATH } from "../../src/webhook/app.ts";
import { startWebhookServer } from "../../src/webhook/server.ts";
import { webhookConfigurationOf } from "../../src/webhook/webhook-configuration.ts";
import { issueServing } from "../webhook/issue-serving.ts";
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
  const { caBundle, certificate } = await issueServing();
  const server = await startWebhookServer({
    host: "127.0.0.1",
    port: 0,
    certificate,
    metrics: new Metrics(),
    logger: pino({ level: "silent" }),
    drainMs: 0,
    onVerdict: (verdict) => {
      denials += verdict.allowed ? 0 : 1;
    },
  });
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
