import { type Command, Option } from "commander";
import { DEFAULT_SETTLE_MS } from "../migrator/settle.ts";
import { createLogger } from "../observability/logger.ts";
import { type CommandParts, durationOption, type LogOptions, withGlobalOptions } from "./common-options.ts";
import { CONVERGENCE_CHOICES, migrateCommand, type MigrateOptions } from "./commands/migrate-command.ts";
import { collect, parseEndpoints, parseQps, wholeNumber } from "./parse-options.ts";
import { MIGRATE_FORMATS } from "./render/reporter.ts";

/** Adds `ksvm migrate`. */
export function addMigrate(program: Command, { io, onExit }: CommandParts): void {
  const command = withGlobalOptions(program.command("migrate"))
    .description("Freeze the storage version, rewrite every object, prune storedVersions, unfreeze.")
    .argument("[name...]", "plural.group of a CRD or built-in resource")
    .option(
      "--all-stale",
      "migrate every CRD whose storedVersions is not exactly its storage version, and what StorageStates show",
    )
    .option("--dry-run", "try every object by a server-side dry-run; change nothing")
    .option("--standalone", "migrate from here, even where a controller in the cluster would do it")
    .option("--force", "rewrite the objects of a CRD that is clean already")
    .addOption(
      new Option("-o, --output <format>", "plain text, or a line of JSON for each event")
        .choices(MIGRATE_FORMATS)
        .default("text"),
    );
  const tuned = addMigrateTuning(command).option(
    "--lease-namespace <namespace>",
    "where the Lease of the run is kept",
    "kube-system",
  );
  tuned.action(async (names: string[], options: MigrateOptions & LogOptions & Readonly<Record<string, unknown>>) => {
    const logger = createLogger({ level: options.logLevel, format: options.logFormat, destination: io.stderr });
    onExit(await migrateCommand(io, names, migrateOptionsOf(options), logger));
  });
}

/** The options that every migration goes by, whoever runs it. */
export function addMigrateTuning(command: Command): Command {
  return command
    .addOption(
      durationOption(
        "--settle <duration>",
        "how far the last change of the storage version must lie back; the API servers' --request-timeout and a little",
        DEFAULT_SETTLE_MS,
      ),
    )
    .option("--page-size <n>", "objects in a page, at most; fewer where they are large", wholeNumber(1, 10_000), 500)
    .option("--max-in-flight <n>", "requests at the same time, at most", wholeNumber(1, 256), 16)
    .addOption(
      new Option("--max-qps <n>", "requests per second, 0 for no limit")
        .argParser(parseQps)
        .default(Number.POSITIVE_INFINITY, "0"),
    )
    .addOption(
      new Option("--guard <guard>", "what enforces the freeze; auto: the webhook where it is installed, else a policy")
        .choices(["auto", "webhook", "policy"])
        .default("auto"),
    )
    .addOption(durationOption("--proof-timeout <duration>", "how long the guard may take to come into force", 30_000))
    .addOption(
      durationOption(
        "--convergence-timeout <duration>",
        "how long the API servers may take to follow a change of the storage version",
        300_000,
      ),
    )
    .addOption(
      new Option("--convergence <how>", "strict: refuse to sample API servers that cannot be asked one by one")
        .choices(CONVERGENCE_CHOICES)
        .default("auto"),
    )
    .option(
      "--apiserver-endpoints <urls>",
      "the URL of each API server, with commas between; else they are found",
      parseEndpoints,
    )
    .option(
      "--ignore-apiserver <identity>",
      "the name of an identity Lease in kube-system whose API server is gone; repeatable; data is lost if it still runs",
      collect,
    )
    .addOption(durationOption("--max-idle <duration>", "how long a run may get no further before it fails", 900_000))
    .addOption(
      durationOption("--webhook-wait <duration>", "the same, where somebody else's webhook is what fails", 3_600_000),
    )
    .addOption(
      durationOption(
        "--max-freeze-idle <duration>",
        "how long a run may get no further before it lifts the freeze meanwhile",
        300_000,
      ),
    );
}

/** commander names an option after its flag and leaves a switch out that is off. */
function migrateOptionsOf(options: Readonly<Record<string, unknown>>): MigrateOptions {
  const switches = { allStale: false, dryRun: false, standalone: false, force: false };
  return { ...switches, ...durationsOf(options) } as unknown as MigrateOptions;
}

/** Gives the durations of {@link addMigrateTuning} the names that have their unit. */
export function durationsOf(options: Readonly<Record<string, unknown>>): Readonly<Record<string, unknown>> {
  const { settle, proofTimeout, convergenceTimeout, maxIdle, webhookWait, maxFreezeIdle, ...rest } = options;
  return {
    ...rest,
    settleMs: settle,
    proofTimeoutMs: proofTimeout,
    convergenceTimeoutMs: convergenceTimeout,
    maxIdleMs: maxIdle,
    webhookWaitMs: webhookWait,
    maxFreezeIdleMs: maxFreezeIdle,
  };
}
