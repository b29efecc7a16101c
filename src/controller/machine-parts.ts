import {
  addProcessMetrics,
  type HealthServer,
  type HealthServerOptions,
  startHealthServer,
} from "../observability/health.ts";
import { WebhookPart, type WebhookPartOptions } from "./webhook-part.ts";

/** What of a replica needs the machine that it runs on: its addresses, its files and its process. */
export interface MachineParts {
  /** Serves `/livez`, `/readyz` and `/metrics`. @throws {Error} of node:net where the address cannot be had */
  readonly startHealth: (options: HealthServerOptions) => Promise<HealthServer>;
  /** Makes what serves the webhook. */
  readonly openWebhook: (options: WebhookPartOptions) => Pick<WebhookPart, "ready" | "run">;
}

/** Those of this machine. */
export const MACHINE_PARTS: MachineParts = {
  startHealth(options) {
    addProcessMetrics(options.registry);
    return startHealthServer(options);
  },
  openWebhook: (options) => new WebhookPart(options),
};
