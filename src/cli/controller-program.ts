import { type Command, Option } from "commander";
import { SYSTEM_NAMESPACE } from "../api/migration.ts";
import { CERTIFICATE_SOURCES } from "../controller/settings.ts";
import { createLogger } from "../observability/logger.ts";
import { DEFAULT_INTERVAL_MS, MAX_INTERVAL_MS } from "../trigger/heartbeat-limit.ts";
import { addIssueOptions, DEFAULT_SECRET, renewBeforeOption } from "./certs-program.ts";
import { type CommandParts, durationOption, type LogOptions, withGlobalOptions } from "./common-options.ts";
import { controllerCommand, type ControllerOptions } from "./commands/controller-command.ts";
import { addMigrateTuning, durationsOf } from "./migrate-program.ts";
import { durationFrom, parseGroups, parseWebhookUrl, wholeNumber } from "./parse-options.ts";

/** Reading all of discovery more often than this would be a load of its own. */
const MIN_TRIGGER_INTERVAL_MS = 1_000;

/** Adds `ksvm controller`. */
export function addController(program: Command, { io, onExit }: CommandParts): void {
  const command = withGlobalOptions(program.command("controller"))
    .description(
      "Run the server that is installed: webhook, migrations, trigger and certificates. Any number of replicas.",
    )
    .option(
      "--namespace <namespace>",
      "where the Lease of the leader, the Service and the Secret are",
      SYSTEM_NAMESPACE,
    )
    .option("--concurrent-migrations <n>", "resources that are migrated at once", wholeNumber(1, 64), 1)
    .addOption(
      new Option("--manage-stored-versions <bool>", "false: only rewrite objects; freeze nothing, prune nothing")
        .choices(["true", "false"])
        .default("true"),
    )
    .option("--health-host <address>", "the address of /livez, /readyz and /metrics", "0.0.0.0")
    .option("--health-port <port>", "their port, 0 for a free one", wholeNumber(0, 65_535), 8080);
  addTrigger(command);
  addWebhook(command);
  addMigrateTuning(addIssueOptions(command).addOption(renewBeforeOption())).action(
    async (options: ControllerOptions & LogOptions & Readonly<Record<string, unknown>>) => {
      const logger = createLogger({ level: options.logLevel, format: options.logFormat, destination: io.stderr });
      onExit(await controllerCommand(io, controllerOptionsOf(options), logger));
    },
  );
}

function addTrigger(command: Command): void {
  command
    .addOption(
      new Option("--trigger <on|off>", "whether migrations are created where the storage version moved")
        .choices(["on", "off"])
        .default("on"),
    )
    .addOption(
      new Option("--trigger-interval <duration>", "how often all of discovery is looked at; less than 5m")
        .argParser(durationFrom(MIN_TRIGGER_INTERVAL_MS, MAX_INTERVAL_MS))
        .default(DEFAULT_INTERVAL_MS, `${DEFAULT_INTERVAL_MS / 1_000}s`),
    )
    .option(
      "--trigger-exclude-groups <groups>",
      'API groups to leave alone, with commas between; "core" is the one without a name',
      parseGroups,
    );
}

function addWebhook(command: Command): void {
  command
    .option("--webhook-host <address>", "the address to serve the webhook at", "0.0.0.0")
    .option("--webhook-port <port>", "its port, 0 for a free one", wholeNumber(0, 65_535), 9443)
    .option(
      "--webhook-url <url>",
      "where API servers call it, such as https://192.0.2.1:9443/validate; else the Service",
      parseWebhookUrl,
    )
    .addOption(
      new Option("--certificates <source>", "own: the Secret that ksvm certs keeps; files: a mounted pair")
        .choices(CERTIFICATE_SOURCES)
        .default("own"),
    )
    .option("--cert-secret <name>", "the Secret of the certificates, for own", DEFAULT_SECRET)
    .option("--cert-dir <folder>", "the folder with tls.crt and tls.key, for files", "/etc/ksvm/tls")
    .addOption(
      durationOption(
        "--shutdown-drain <duration>",
        "how long the webhook goes on answering after the server was told to stop",
        10_000,
      ),
    );
}

/** commander names an option after its flag; durations get their unit here. */
function controllerOptionsOf(options: Readonly<Record<string, unknown>>): ControllerOptions {
  const { triggerInterval, shutdownDrain, caLifetime, servingLifetime, apiserverDwell, replicaDwell, ...rest } =
    options;
  return {
    ...durationsOf(rest),
    leaseNamespace: rest["namespace"],
    manageStoredVersions: rest["manageStoredVersions"] === "true",
    triggerIntervalMs: triggerInterval,
    shutdownDrainMs: shutdownDrain,
    caLifetimeMs: caLifetime,
    servingLifetimeMs: servingLifetime,
    apiServerDwellMs: apiserverDwell,
    replicaDwellMs: replicaDwell,
  } as unknown as ControllerOptions;
}
