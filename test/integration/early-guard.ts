import type { Test } from "tap";
import { EARLY_WEBHOOK_NAME } from "../../src/api/names.ts";
import { type Clock, systemClock } from "../../src/clock.ts";
import type { ApiClient } from "../../src/kube/client.ts";
import type { WebhookPart } from "../../src/controller/webhook-part.ts";
import { WEBHOOK_CONFIGURATIONS } from "../../src/kube/resources.ts";
import type { EarlySettings } from "../../src/webhook/early-migrations.ts";
import { type Cluster, eventually } from "./cluster.ts";
import { freePort } from "./replica.ts";
import { startWebhookPart } from "./started-webhook-part.ts";

/** A replica of the webhook that API servers call, and its configuration with the caBundle. It ends with the test. */
export async function startEarlyGuard(
  t: Test,
  { api }: Cluster,
  earlyMigrations: EarlySettings,
  clock: Clock = systemClock,
): Promise<WebhookPart> {
  const port = await freePort();
  const url = `https://127.0.0.1:${port}/validate`;
  const part = startWebhookPart(t, api, { clock, webhook: { port, url, earlyMigrations } });
  await eventually(async () => part.ready() === undefined, "the webhook is ready");
  await eventually(() => isConfigured(api), "the configuration has a caBundle");
  return part;
}

/** Whether the configuration asks about creations, and trusts a CA. */
export async function isConfigured(api: ApiClient): Promise<boolean> {
  interface Live {
    readonly webhooks?: readonly {
      readonly clientConfig: { readonly caBundle?: string };
      readonly rules: readonly { readonly operations: readonly string[] }[];
    }[];
  }
  const live = await api.find<Live>(WEBHOOK_CONFIGURATIONS, { name: EARLY_WEBHOOK_NAME });
  const [webhook] = live?.webhooks ?? [];
  return webhook?.clientConfig.caBundle !== undefined && webhook.rules[0]?.operations.join() === "CREATE";
}
