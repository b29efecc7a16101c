import { systemClock } from "../../clock.ts";
import type { WebhookSettings } from "../../controller/settings.ts";
import { takeOverFrom } from "../flags/certificate-flags.ts";
import { WEBHOOK_COMMAND_FLAGS } from "../flags/controller-flags.ts";
import type { FlagsOf } from "../flags/flag.ts";
import { NO_OPERANDS } from "../flags/operands.ts";
import { EXIT } from "../render/exit-codes.ts";
import { defineCommand } from "../shared/command.ts";
import { connect } from "../shared/connect.ts";
import { loggerOf } from "../shared/logger-of.ts";

type WebhookFlags = FlagsOf<typeof WEBHOOK_COMMAND_FLAGS>;

/** `ksvm webhook`: one replica of the webhook alone, until it is told to stop. */
export const WEBHOOK_COMMAND = defineCommand({
  path: "webhook",
  description: "Run one replica of the webhook alone, beside controllers with --webhook=off.",
  examples: ["ksvm webhook"],
  operands: NO_OPERANDS,
  flags: WEBHOOK_COMMAND_FLAGS,
  async run(io, flags) {
    const { Metrics, observeRequests, serveWebhook } = await import("../../controller/server.ts");
    const metrics = new Metrics();
    const logger = loggerOf(io, flags);
    const connection = await connect(flags, io.signal, observeRequests(metrics));
    const { certSecret: secret, healthHost: host, healthPort: port, namespace, service } = flags;
    try {
      const settings = {
        webhook: webhookSettingsOf(flags),
        certificates: { namespace, secret, service, takeOverFrom: takeOverFrom(secret) },
        health: { host, port },
      };
      await serveWebhook({ ...connection, clock: systemClock, logger, metrics, settings, signal: io.signal });
      return EXIT.done;
    } finally {
      await connection.close();
    }
  },
});

/** What the flags say of how the webhook is served. */
export function webhookSettingsOf(
  flags: Pick<
    WebhookFlags,
    "certDir" | "certificates" | "shutdownDrainMs" | "webhookHost" | "webhookPort" | "webhookUrl"
  >,
): WebhookSettings {
  return {
    host: flags.webhookHost,
    port: flags.webhookPort,
    url: flags.webhookUrl,
    certificates: flags.certificates,
    certDir: flags.certDir,
    drainMs: flags.shutdownDrainMs,
  };
}
