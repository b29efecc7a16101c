import { Command, CommanderError, Option } from "commander";
import { SYSTEM_NAMESPACE } from "../api/migration.ts";
import { addCerts } from "./certs-program.ts";
import { type LogOptions, withGlobalOptions } from "./common-options.ts";
import { addController } from "./controller-program.ts";
import { EXIT, type ExitCode } from "./exit-codes.ts";
import type { CliIo } from "./io.ts";
import { InterruptionNotice } from "./interruption-notice.ts";
import { initCommand, type InitCommandOptions, INIT_FORMATS } from "./commands/init-command.ts";
import { addMigrate } from "./migrate-program.ts";
import { planCommand, type PlanOptions } from "./commands/plan-command.ts";
import { PLAN_FORMATS } from "./render/render-plan.ts";
import { errorLine, exitCodeOf } from "./report-error.ts";
import { STATUS_FORMATS } from "./render/render-status.ts";
import { statusCommand, type StatusOptions } from "./commands/status-command.ts";
import { addSuspend } from "./suspend-program.ts";
import { unfreezeCommand, type UnfreezeOptions } from "./commands/unfreeze-command.ts";
import { programVersion } from "./version.ts";

/**
 * Runs one command line.
 * @param args the arguments after the program's name
 * @returns the exit code; errors are written to stderr, one line each
 */
export async function runProgram(args: readonly string[], io: CliIo): Promise<ExitCode> {
  let exitCode: ExitCode = EXIT.done;
  const notice = new InterruptionNotice(io);
  const program = buildProgram({ ...io, onMayFreeze: () => notice.mayFreeze() }, (code) => {
    exitCode = code;
  });
  program.hook("preAction", (_program, command) => notice.listen(command.opts<LogOptions>()));
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
  addMigrate(program, { io, onExit });
  addInit(program, io, onExit);
  addStatus(program, io, onExit);
  addSuspend(program, { io, onExit });
  addUnfreeze(program, io, onExit);
  addCerts(program, { io, onExit });
  addController(program, { io, onExit });
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
