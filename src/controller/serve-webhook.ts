import type { HealthCheck } from "../observability/health.ts";
import { MACHINE_PARTS, type MachineParts } from "./machine-parts.ts";
import { webhookLoops } from "./replica-loops.ts";
import type { ReplicaOptions } from "./replica-options.ts";
import type { ServingSettings } from "./settings.ts";

/** What {@link serveWebhook} needs. */
export interface ServeWebhookOptions extends Pick<ReplicaOptions, "client" | "clock" | "logger" | "metrics"> {
  readonly settings: ServingSettings;
  /** Ends the server. */
  readonly signal: AbortSignal;
  /** @default those of this machine */
  readonly machine?: Pick<MachineParts, "startHealth" | "openWebhook">;
}

/**
 * The webhook alone, until the signal is aborted: what reads bytes from the network in a process that may do nothing but keep its
 * own configurations and read CRDs and its own Secret. It knows nothing of migrations, so its denials do not say how far one is.
 *
 * @throws {Error} of node:net where an address cannot be had.
 */
export async function serveWebhook(options: ServeWebhookOptions): Promise<void> {
  const { clock, logger, machine = MACHINE_PARTS, metrics, settings, signal } = options;
  const failed = new AbortController();
  const ending = AbortSignal.any([signal, failed.signal]);
  const loops = webhookLoops(clock);
  const webhook = machine.openWebhook({ ...options, loops, progressOf: () => undefined });
  const readiness: readonly HealthCheck[] = [
    { name: "webhook", check: () => webhook.ready() },
    { name: "shutdown", check: () => (ending.aborted ? "shutting down" : undefined) },
  ];
  const { registry } = metrics;
  const health = await machine.startHealth({
    ...settings.health,
    liveness: loops.checks(),
    readiness,
    registry,
    logger,
  });
  logger.info({ url: health.url }, "Started a webhook of its own");
  try {
    await webhook.run(ending);
  } finally {
    failed.abort(new Error("the webhook has ended"));
    await health.close();
    logger.info("Stopped");
  }
}
