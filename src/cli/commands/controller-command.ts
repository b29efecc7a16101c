import { randomUUID } from "node:crypto";
import { hostname } from "node:os";
import { WEBHOOK_NAME } from "../../freeze/rule.ts";
import { DEFAULT_FOLLOW_TIMEOUT_MS } from "../../certs/rotation-plan.ts";
import { systemClock } from "../../clock.ts";
import type { ControllerSettings } from "../../controller/settings.ts";
import { defineCommand } from "../shared/command.ts";
import { connect } from "../shared/connect.ts";
import { EXIT } from "../render/exit-codes.ts";
import { CONTROLLER_FLAGS } from "../flags/controller-flags.ts";
import { assertLifetimes, calledBy, furtherNamesOf } from "../flags/certificate-flags.ts";
import type { FlagsOf } from "../flags/flag.ts";
import { NO_OPERANDS } from "../flags/operands.ts";
import { runSettingsOf, settleWarning } from "../flags/run-settings.ts";
import { loggerOf } from "../shared/logger-of.ts";

type ControllerFlags = FlagsOf<typeof CONTROLLER_FLAGS>;

/** `ksvm controller`: one replica of the installed system, until it is told to stop. */
export const CONTROLLER_COMMAND = defineCommand({
  path: "controller",
  description: "Run one replica of the installed server: webhook, migrations, trigger and certificates.",
  examples: ["ksvm controller --concurrent-migrations=8"],
  operands: NO_OPERANDS,
  flags: CONTROLLER_FLAGS,
  async run(io, flags) {
    assertServable(flags);
    const settings = settingsOf(flags);
    const { Metrics, measured, serve } = await import("../../controller/serve.ts");
    const metrics = new Metrics();
    const logger = loggerOf(io, flags);
    const connection = await connect(flags, io.signal, measured(metrics));
    if (flags.manageStoredVersions) {
      io.onMayFreeze?.();
    }
    const warning = settleWarning(flags);
    if (warning !== undefined) logger.warn(warning);
    try {
      await serve({
        client: connection.kube,
        clock: systemClock,
        logger,
        metrics,
        settings,
        identity: `${hostname()}_${randomUUID()}`,
        signal: io.signal,
      });
      return EXIT.done;
    } finally {
      await connection.close();
    }
  },
});

/** @throws {KsvmError} Usage */
function assertServable(flags: ControllerFlags): void {
  // Without storedVersions nothing is frozen, so that no certificates are kept.
  if (flags.certificates === "own" && flags.manageStoredVersions) {
    assertLifetimes(flags);
  }
}

function settingsOf(flags: ControllerFlags): ControllerSettings {
  return {
    namespace: flags.namespace,
    webhook: {
      host: flags.webhookHost,
      port: flags.webhookPort,
      url: flags.webhookUrl,
      certificates: flags.certificates,
      certDir: flags.certDir,
      drainMs: flags.shutdownDrainMs,
    },
    certificates: {
      ...flags,
      calledBy: calledBy(flags),
      extraNames: furtherNamesOf(flags),
      apiServerDwellMs: flags.apiserverDwellMs,
      secret: flags.certSecret,
      webhookConfiguration: WEBHOOK_NAME,
      timeoutMs: DEFAULT_FOLLOW_TIMEOUT_MS,
    },
    health: { host: flags.healthHost, port: flags.healthPort },
    runs: {
      ...runSettingsOf({ ...flags, leaseNamespace: flags.namespace }),
      crdMode: flags.manageStoredVersions ? "manage" : "rewrite",
    },
    concurrentMigrations: flags.concurrentMigrations,
    finishedMigrationsLimit: flags.finishedMigrationsLimit,
    trigger:
      flags.trigger === "on"
        ? {
            intervalMs: flags.triggerIntervalMs,
            excludedGroups: flags.triggerExcludeGroups ?? [],
            onlyResources: flags.triggerOnlyResources,
          }
        : undefined,
  };
}
