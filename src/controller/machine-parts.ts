import {
  addProcessMetrics,
  type HealthServer,
  type HealthServerOptions,
  startHealthServer,
} from "../observability/health.ts";
import type { CertificateTools } from "../certs/ensure-options.ts";
import { WebhookPart, type WebhookPartOptions } from "./webhook-part.ts";

/** What of a replica needs the machine that it runs on: its addresses, its files and its process. */
export interface MachineParts {
  /** Serves `/livez`, `/readyz` and `/metrics`. @throws {Error} of node:net where the address cannot be had */
  readonly startHealth: (options: HealthServerOptions) => Promise<HealthServer>;
  /** Makes what serves the webhook. */
  readonly openWebhook: (options: WebhookPartOptions) => Pick<WebhookPart, "ready" | "run">;
  /** What the one that leads keeps the certificates with. @default those of this machine */
  readonly certificates?: CertificateTools;
}

/** Those of this machine. */
export const MACHINE_PARTS: MachineParts = {
  startHealth(options) {
    addProcessMetrics(options.registry);
    return startHealthServer(options);
  },
  openWebhook: (options) => new WebhookPart(options),
};
