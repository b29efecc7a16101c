import { Command, CommanderError, Option } from "commander";
import { SYSTEM_NAMESPACE } from "../api/migration.ts";
import { DEFAULT_SETTLE_MS } from "../migrator/settle.ts";
import { createLogger, LOG_FORMATS, LOG_LEVELS, type LoggerOptions } from "../observability/logger.ts";
import { addCerts } from "./certs-program.ts";
import { EXIT, type ExitCode } from "./exit-codes.ts";
import type { CliIo } from "./io.ts";
import { initCommand, type InitCommandOptions, INIT_FORMATS } from "./init-command.ts";
import { CONVERGENCE_CHOICES, migrateCommand, type MigrateOptions } from "./migrate-command.ts";
import { parseDuration, parseEndpoints, parseQps, wholeNumber } from "./parse-options.ts";
import { planCommand, type PlanOptions } from "./plan-command.ts";
import { PLAN_FORMATS } from "./render-plan.ts";
import { errorLine, exitCodeOf } from "./report-error.ts";
import { MIGRATE_FORMATS } from "./reporter.ts";
import { STATUS_FORMATS } from "./render-status.ts";
import { statusCommand, type StatusOptions } from "./status-command.ts";
import { unfreezeCommand, type UnfreezeOptions } from "./unfreeze-command.ts";
import { programVersion } from "./version.ts";

interface LogOptions {
  readonly logLevel: LoggerOptions["level"];
  readonly logFormat: LoggerOptions["format"];
}

/**
 * Runs one command line.
 * @param args the arguments after the program's name
 * @returns the exit code; errors are written to stderr, one line each
 */
export async function runProgram(args: readonly string[], io: CliIo): Promise<ExitCode> {
  let exitCode: ExitCode = EXIT.done;
  const program = buildProgram(io, (code) => {
    exitCode = code;
  });
  try {
    await program.parseAsync(args, { from: "user" });
    return exitCode;
  } catch (error) {
    if (error instanceof CommanderError) {
      return error.exitCode === 0 ? EXIT.done : EXIT.usage;
    }
    io.stderr.write(`${errorLine(error)}\n`);
    return exitCodeOf(error);
  }
}

/** The commands with their flags. `docs/cli.md` lists the same; a test compares them. */
export function buildProgram(io: CliIo, onExit: (code: ExitCode) => void): Command {
  const program = new Command("ksvm")
    .description("Migrates Kubernetes objects to their storage version and prunes storedVersions, safely.")
    .version(programVersion(), "--version", "print the version")
    .exitOverride()
    .configureOutput({
      writeOut: (text) => void io.stdout.write(text),
      writeErr: (text) => void io.stderr.write(text),
    })
    .helpCommand(false);
  addPlan(program, io, onExit);
  addMigrate(program, io, onExit);
  addInit(program, io, onExit);
  addStatus(program, io, onExit);
  addUnfreeze(program, io, onExit);
  addCerts(program, { io, onExit, withGlobalOptions, durationOption });
  return program;
}

function addPlan(program: Command, io: CliIo, onExit: (code: ExitCode) => void): void {
  withGlobalOptions(program.command("plan"))
    .description("Show what migrations would do; change nothing.")
    .argument("[name...]", "plural.group of a CRD or built-in resource; all of them where none is named")
    .addOption(new Option("-o, --output <format>", "how to print").choices(PLAN_FORMATS).default("table"))
    .action(async (names: string[], options: PlanOptions) => {
      onExit(await planCommand(io, names, options));
    });
}

function addMigrate(program: Command, io: CliIo, onExit: (code: ExitCode) => void): void {
  const command = withGlobalOptions(program.command("migrate"))
    .description("Freeze the storage version, rewrite every object, prune storedVersions, unfreeze.")
    .argument("[name...]", "plural.group of a CRD or built-in resource")
    .option("--all-stale", "migrate every CRD whose storedVersions is not exactly its storage version")
    .option("--dry-run", "try every object by a server-side dry-run; change nothing")
    .option("--standalone", "migrate from here, even where a controller in the cluster would do it")
    .option("--force", "rewrite the objects of a CRD that is clean already")
    .addOption(
      new Option("-o, --output <format>", "plain text, or a line of JSON for each event")
        .choices(MIGRATE_FORMATS)
        .default("text"),
    );
  addMigrateTuning(command).action(
    async (names: string[], options: MigrateOptions & LogOptions & Readonly<Record<string, unknown>>) => {
      const logger = createLogger({ level: options.logLevel, format: options.logFormat, destination: io.stderr });
      onExit(await migrateCommand(io, names, migrateOptionsOf(options), logger));
    },
  );
}

function addInit(program: Command, io: CliIo, onExit: (code: ExitCode) => void): void {
  withGlobalOptions(program.command("init"))
    .description("Install the CRDs of migration.k8s.io and create one migration for each resource of the cluster.")
    .option("--replace", "remove another migrator or trigger that is active, instead of refusing")
    .option("--namespace <namespace>", "where the controller is installed", SYSTEM_NAMESPACE)
    .addOption(new Option("-o, --output <format>", "how to print").choices(INIT_FORMATS).default("text"))
    .action(async (options: InitCommandOptions) => {
      onExit(await initCommand(io, { ...options, replace: options.replace ?? false }));
    });
}

function addStatus(program: Command, io: CliIo, onExit: (code: ExitCode) => void): void {
  withGlobalOptions(program.command("status"))
    .description("Show the progress of every migration, and which CRDs are frozen by whom.")
    .argument("[name]", "a resource (plural.group) or a migration; all of them where none is named")
    .option("-w, --watch", "go on showing what changes, until interrupted")
    .addOption(new Option("-o, --output <format>", "how to print").choices(STATUS_FORMATS).default("table"))
    .action(async (name: string | undefined, options: StatusOptions) => {
      onExit(await statusCommand(io, name, options));
    });
}

function addUnfreeze(program: Command, io: CliIo, onExit: (code: ExitCode) => void): void {
  withGlobalOptions(program.command("unfreeze"))
    .description("Lift the freeze of a CRD by hand. A migration that is running then ends without pruning.")
    .argument("<name>", "plural.group of a CRD")
    .option("-y, --yes", "do not ask on a terminal")
    .action(async (name: string, options: UnfreezeOptions) => {
      onExit(await unfreezeCommand(io, name, options));
    });
}

function addMigrateTuning(command: Command): Command {
  return command
    .addOption(
      durationOption(
        "--settle <duration>",
        "how far the last change of the storage version must lie back; the API servers' --request-timeout and a little",
        DEFAULT_SETTLE_MS,
      ),
    )
    .option("--page-size <n>", "objects in a page", wholeNumber(1, 10_000), 500)
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
    )
    .option("--lease-namespace <namespace>", "where the Lease of the run is kept", "kube-system");
}

function durationOption(flags: string, description: string, defaultMs: number): Option {
  return new Option(flags, description).argParser(parseDuration).default(defaultMs, `${defaultMs / 1_000}s`);
}

function withGlobalOptions(command: Command): Command {
  return command
    .option("--kubeconfig <path>", "kubeconfig to use; else KUBECONFIG, ~/.kube/config or the service account")
    .option("--context <name>", "context of the kubeconfig to use")
    .addOption(new Option("--log-level <level>", "what to log to stderr").choices(LOG_LEVELS).default("warn"))
    .addOption(new Option("--log-format <format>", "how to log").choices(LOG_FORMATS).default("text"));
}

/** commander names an option after its flag and leaves a switch out that is off; durations get their unit here. */
function migrateOptionsOf(options: Readonly<Record<string, unknown>>): MigrateOptions {
  const { settle, proofTimeout, convergenceTimeout, maxIdle, webhookWait, maxFreezeIdle, ...rest } = options;
  const switches = { allStale: false, dryRun: false, standalone: false, force: false };
  const durations = {
    settleMs: settle,
    proofTimeoutMs: proofTimeout,
    convergenceTimeoutMs: convergenceTimeout,
    maxIdleMs: maxIdle,
    webhookWaitMs: webhookWait,
    maxFreezeIdleMs: maxFreezeIdle,
  };
  return { ...switches, ...rest, ...durations } as unknown as MigrateOptions;
}
