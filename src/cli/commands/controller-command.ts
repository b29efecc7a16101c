import { randomUUID } from "node:crypto";
import { hostname } from "node:os";
import type { Logger } from "pino";
import { WEBHOOK_NAME } from "../../api/names.ts";
import type { CertificateSettings } from "../../certs/ensure.ts";
import { systemClock } from "../../clock.ts";
import { serve } from "../../controller/serve.ts";
import type { ControllerSettings, WebhookSettings } from "../../controller/settings.ts";
import { Metrics } from "../../observability/metrics.ts";
import { observeRequests } from "../../observability/observe-requests.ts";
import type { MigrationOptions } from "../../migrator/run-context.ts";
import { type ConnectOptions, connect } from "../connect.ts";
import { EXIT, type ExitCode } from "../exit-codes.ts";
import type { CliIo } from "../io.ts";
import type { MigrateOptions } from "./migrate-command.ts";

/** The options of `ksvm controller`. */
export interface ControllerOptions
  extends ConnectOptions,
    Omit<MigrationOptions, "dryRun" | "force">,
    Pick<
      MigrateOptions,
      | "maxInFlight"
      | "maxQps"
      | "maxIdleMs"
      | "webhookWaitMs"
      | "apiserverEndpoints"
      | "ignoreApiserver"
      | "convergence"
    >,
    Omit<CertificateSettings, "secret" | "webhookConfiguration" | "timeoutMs"> {
  readonly concurrentMigrations: number;
  readonly healthHost: string;
  readonly healthPort: number;
  readonly trigger: "on" | "off";
  readonly triggerIntervalMs: number;
  readonly triggerExcludeGroups?: readonly string[];
  readonly webhookHost: string;
  readonly webhookPort: number;
  readonly webhookUrl?: string;
  readonly certificates: WebhookSettings["certificates"];
  readonly certSecret: string;
  readonly certDir: string;
  readonly shutdownDrainMs: number;
}

/** How long an API server that is gone is waited for before a replica that starts gives up, in milliseconds. */
const CERTIFICATE_TIMEOUT_MS = 300_000;

/**
 * `ksvm controller`: one replica of the installed system, until it is told to stop.
 * @throws {KsvmError} where it cannot reach the API server at all.
 */
export async function controllerCommand(io: CliIo, options: ControllerOptions, logger: Logger): Promise<ExitCode> {
  const metrics = new Metrics();
  const connection = await connect(options, io.signal, observeRequests(metrics));
  if (options.manageStoredVersions !== false) {
    io.onMayFreeze?.();
  }
  try {
    await serve({
      ...connection,
      clock: systemClock,
      logger,
      metrics,
      settings: settingsOf(options),
      identity: `${hostname()}_${randomUUID()}`,
      signal: io.signal,
    });
    return EXIT.done;
  } finally {
    await connection.close();
  }
}

function settingsOf(options: ControllerOptions): ControllerSettings {
  const { healthHost, healthPort, namespace, triggerExcludeGroups = [], triggerIntervalMs } = options;
  return {
    namespace,
    webhook: {
      host: options.webhookHost,
      port: options.webhookPort,
      url: options.webhookUrl,
      certificates: options.certificates,
      certDir: options.certDir,
      drainMs: options.shutdownDrainMs,
    },
    certificates: {
      ...options,
      ...namesOf(options),
      secret: options.certSecret,
      webhookConfiguration: WEBHOOK_NAME,
      timeoutMs: CERTIFICATE_TIMEOUT_MS,
    },
    health: { host: healthHost, port: healthPort },
    runs: {
      options,
      maxInFlight: options.maxInFlight,
      maxQps: options.maxQps,
      maxIdleMs: options.maxIdleMs,
      webhookWaitMs: options.webhookWaitMs,
      apiserverEndpoints: options.apiserverEndpoints,
      ignoredApiservers: options.ignoreApiserver,
      strict: options.convergence === "strict",
    },
    concurrentMigrations: options.concurrentMigrations,
    trigger:
      options.trigger === "on" ? { intervalMs: triggerIntervalMs, excludedGroups: triggerExcludeGroups } : undefined,
  };
}

/** A webhook that is called by a URL must be valid for the host in it. */
function namesOf({ extraNames = [], webhookUrl }: ControllerOptions): Pick<CertificateSettings, "extraNames"> {
  if (webhookUrl === undefined) {
    return { extraNames };
  }
  const { hostname: host } = new URL(webhookUrl);
  return { extraNames: [...new Set([...extraNames, host.replace(/^\[(.*)\]$/, "$1")])] };
}
