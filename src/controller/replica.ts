import type { Logger } from "pino";
import type { CertificateTools } from "../certs/ensure.ts";
import type { Clock } from "../clock.ts";
import type { Client } from "../kube/client.ts";
import {
  addProcessMetrics,
  type HealthServer,
  type HealthServerOptions,
  startHealthServer,
} from "../observability/health.ts";
import { Loops } from "../observability/loops.ts";
import type { Metrics } from "../observability/metrics.ts";
import type { ControllerSettings } from "./settings.ts";
import { WebhookPart, type WebhookPartOptions } from "./webhook-part.ts";

// What the parts of a replica share.

/** What every part of a replica needs. */
export interface ReplicaOptions {
  readonly client: Client;
  readonly clock: Clock;
  readonly logger: Logger;
  readonly metrics: Metrics;
  readonly settings: ControllerSettings;
  /** Unique to this replica: host name and a random part. */
  readonly identity: string;
}

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

const MINUTE_MS = 60_000;
/**
 * Every request has a deadline of a minute or two, and every watch ends after some minutes: who does nothing for so long,
 * in milliseconds, hangs. A limit is generous, since a restart in the middle of an outage repairs nothing.
 */
const LIMIT_MS = 30 * MINUTE_MS;
/** A run that cannot lift its freeze tries that for an hour, and those who wait for its end do so as long. */
const LIMIT_OF_RUNS_MS = 90 * MINUTE_MS;

const LIMITS = {
  election: LIMIT_OF_RUNS_MS,
  migrations: LIMIT_OF_RUNS_MS,
  queue: LIMIT_OF_RUNS_MS,
  sweep: LIMIT_OF_RUNS_MS,
  "migration-watch": LIMIT_MS,
  statuses: LIMIT_MS,
  expiry: LIMIT_MS,
  trigger: LIMIT_MS,
  certificates: LIMIT_MS,
  progress: LIMIT_MS,
  configuration: LIMIT_MS,
  "serving-certificate": LIMIT_MS,
} as const;

/** The watch of all loops of a replica. */
export type ReplicaLoops = Loops<keyof typeof LIMITS>;

/** Nothing is watched yet. */
export function replicaLoops(clock: Clock): ReplicaLoops {
  return new Loops(clock, LIMITS);
}

/**
 * Runs parts until the signal is aborted. One that fails takes the others with it: a replica does all of its work or none.
 * @throws what the first one failed with, once all of them have ended
 */
export async function together(
  signal: AbortSignal,
  parts: readonly ((signal: AbortSignal) => Promise<void>)[],
): Promise<void> {
  const failed = new AbortController();
  const within = AbortSignal.any([signal, failed.signal]);
  await Promise.all(parts.map((part) => part(within).catch((error: unknown) => failed.abort(error))));
  failed.signal.throwIfAborted();
}
