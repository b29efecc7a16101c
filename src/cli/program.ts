import { Command, CommanderError, Option } from "commander";
import type { CliCommand, GivenArguments } from "./shared/command.ts";
import { COMMANDS } from "./commands/all-commands.ts";
import { EXIT, type ExitCode } from "./render/exit-codes.ts";
import { type Flag, meaningOf, synopsisOf } from "./flags/flag.ts";
import { InterruptionNotice } from "./shared/interruption-notice.ts";
import type { CliIo } from "./render/io.ts";
import { oneLine } from "./render/printable.ts";
import { errorLine, exitCodeOf } from "./render/report-error.ts";
import { programVersion } from "./shared/version.ts";

/**
 * Runs one command line.
 * @param args the arguments after the program's name
 * @param name as the user calls it, see {@link programNameOf}
 * @returns the exit code; errors are written to stderr, one line each
 */
export async function runProgram(args: readonly string[], io: CliIo, name = PROGRAM_NAME): Promise<ExitCode> {
  let exitCode: ExitCode = EXIT.done;
  const notice = new InterruptionNotice(io);
  const commandIo = { ...io, onMayFreeze: () => notice.mayFreeze() };
  const program = buildProgram({ io, name }, async (command, given) => {
    exitCode = await command.run(commandIo, given, (flags) => notice.listen(flags));
  });
  try {
    await program.parseAsync(withoutHelpWord(args), { from: "user" });
    return exitCode;
  } catch (error) {
    if (error instanceof CommanderError) {
      return error.exitCode === 0 ? EXIT.done : EXIT.usage;
    }
    io.stderr.write(`${errorLine(error)}\n`);
    return exitCodeOf(error);
  }
}

const PROGRAM_NAME = "ksvm";

/** `help certs ensure` means `certs ensure --help`: commander's command takes one word. */
function withoutHelpWord(args: readonly string[]): readonly string[] {
  const [first, ...words] = args;
  return first === "help" && words.length > 1 ? [...words.filter((word) => !word.startsWith("-")), "--help"] : args;
}

/** What the user typed: kubectl runs a file that is called kubectl-ksvm for `kubectl ksvm`. */
export function programNameOf(file: string): string {
  return /(?:^|[\\/])kubectl[-_]ksvm(?:\.[a-z]+)?$/.test(file) ? `kubectl ${PROGRAM_NAME}` : PROGRAM_NAME;
}

/** Runs a command with what the command line holds. */
type Runner = (command: CliCommand, given: GivenArguments) => Promise<void>;

/** The descriptions of the commands that only hold others. */
const GROUPS: Readonly<Record<string, string>> = {
  certs: "Manage the certificates of the webhook, which are stored in a Secret.",
};

/** {@link COMMANDS} as commander needs them. It splits the command line; the tables of flags read the values. */
function buildProgram({ io, name }: { readonly io: CliIo; readonly name: string }, run: Runner): Command {
  const program = new Command(name)
    .description("Migrates Kubernetes objects to their storage version and prunes storedVersions, safely.")
    .version(programVersion(), "--version", "print the version")
    .exitOverride()
    .configureOutput({
      writeOut: (text) => void io.stdout.write(text),
      writeErr: (text) => void io.stderr.write(text),
      // Of a suggestion commander makes a second line.
      outputError: (text, write) => write(`${oneLine(text.trim().replaceAll(/\s*\n\s*/g, " "))} [Usage]\n`),
    })
    .helpCommand("help [command]", "show the help of a command")
    .addHelpText(
      "after",
      examplesText(name, ["ksvm plan --stale", "ksvm migrate widgets.example.com", "ksvm help migrate"]),
    );
  for (const command of COMMANDS) {
    addCommand(program, command, { name, run });
  }
  return program;
}

/** The end of `--help`. */
function examplesText(name: string, examples: readonly string[]): string {
  const lines = examples.map((example) => `  ${example.replaceAll(/\bksvm (?=[a-z])/g, `${name} `)}`);
  return `\nExamples:\n${lines.join("\n")}`;
}

function addCommand(
  program: Command,
  command: CliCommand,
  { name: programName, run }: { readonly name: string; readonly run: Runner },
): void {
  const words = command.path.split(" ");
  const parent = words.slice(0, -1).reduce(groupOf, program);
  const added = parent
    .command(words.at(-1) ?? "")
    .description(command.description)
    .addHelpText("after", examplesText(programName, command.examples));
  const { syntax, help } = command.operands;
  if (syntax !== undefined) {
    added.argument(syntax, help);
  }
  for (const [name, flag] of Object.entries(command.flags)) {
    added.addOption(optionOf(name, flag));
  }
  added.action(() => run(command, { operands: added.args, flags: givenFlags(added) }));
}

function groupOf(parent: Command, name: string): Command {
  const known = parent.commands.find((command) => command.name() === name);
  return known ?? parent.command(name).description(GROUPS[name] ?? "");
}

const HEADINGS = { advanced: "Advanced options:", global: "Global options:" } as const;

function optionOf(name: string, flag: Flag<unknown>): Option {
  const suffix = flag.fallbackText === undefined ? "" : ` (default: ${flag.fallbackText})`;
  const option = new Option(synopsisOf(name, flag), `${meaningOf(flag)}${suffix}`);
  if (flag.group !== undefined && flag.group !== "command") {
    option.helpGroup(HEADINGS[flag.group]);
  }
  return flag.isRepeatable ? option.argParser(collect) : option;
}

function collect(text: string, before: readonly string[] | undefined): readonly string[] {
  return [...(before ?? []), text];
}

/** What the command line holds, by the long names of the flags: strings, lists of them, and `true` for switches. */
function givenFlags(command: Command): GivenArguments["flags"] {
  return Object.fromEntries(
    command.options.map((option): [string, unknown] => [option.name(), command.getOptionValue(option.attributeName())]),
  );
}
