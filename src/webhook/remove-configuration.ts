import type { Logger } from "pino";
import { isOurs } from "../api/ours.ts";
import type { Clock } from "../clock.ts";
import { WEBHOOK_NAME } from "../freeze/rule.ts";
import type { ApiClient, KubeObject } from "../old/kube/client.ts";
import { POLICIES, POLICY_BINDINGS, WEBHOOK_CONFIGURATIONS } from "../old/kube/resources.ts";
import { FailureLog } from "../observability/failure-log.ts";
import { WARN_POLICY_NAME } from "./warn-policy.ts";

/** What {@link removeWebhook} needs. */
export interface RemoveWebhookOptions {
  readonly client: ApiClient;
  readonly clock: Clock;
  readonly logger: Logger;
  readonly signal: AbortSignal;
}

/** A replica with other settings may still be going, and put back what was taken away. */
const LOOK_AGAIN_MS = 60_000;
const RETRY_MS = 5_000;

/**
 * Takes away what the ConfigurationKeeper keeps, if nothing is to be frozen any more, and keeps it
 * away until the signal is aborted. Only what carries our label is taken away.
 */
export async function removeWebhook(options: RemoveWebhookOptions): Promise<void> {
  const { clock, logger, signal } = options;
  const failures = new FailureLog({
    clock,
    logger,
    failing: "Cannot remove the webhook's configuration; trying again",
    working: "The webhook's configuration is removed",
  });
  while (!signal.aborted) {
    let pauseMs = LOOK_AGAIN_MS;
    try {
      await removeOnce(options);
      failures.worked();
    } catch (error) {
      pauseMs = RETRY_MS;
      if (!signal.aborted) {
        failures.failed(error);
      }
    }
    await clock.sleep(pauseMs, signal).catch(() => undefined);
  }
}

async function removeOnce({ client, logger, signal }: RemoveWebhookOptions): Promise<void> {
  for (const [resource, name] of [
    [WEBHOOK_CONFIGURATIONS, WEBHOOK_NAME],
    [POLICY_BINDINGS, WARN_POLICY_NAME],
    [POLICIES, WARN_POLICY_NAME],
  ] as const) {
    const found = await client.find<KubeObject>(resource, { name }, { signal });
    if (found !== undefined && isOurs(found.metadata.labels)) {
      await client.delete(resource, { name }, { signal });
      logger.info({ resource: resource.resource, name }, "Removed an object that freezes needed");
    }
  }
}
