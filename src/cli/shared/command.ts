import type { ExitCode } from "../render/exit-codes.ts";
import { type FlagsOf, type FlagTable, type GivenFlags, readFlags } from "../flags/flag.ts";
import { GLOBAL_FLAGS, type LogFlags, withVerbosity } from "../flags/global-flags.ts";
import type { Operands } from "../flags/operands.ts";
import type { CliIo } from "../render/io.ts";

/** What the command line holds, before it is read. */
export interface GivenArguments {
  readonly flags: GivenFlags;
  readonly operands: readonly string[];
}

/** One command: what `--help` and docs/cli.md say about it, and what runs it. {@link defineCommand} makes it. */
export interface CliCommand {
  /** The words after the program's name, such as `certs ensure`. */
  readonly path: string;
  readonly description: string;
  /** Command lines that show what it is for, the program called `ksvm`. */
  readonly examples: readonly string[];
  readonly operands: Pick<Operands<unknown>, "syntax" | "help">;
  /** Every flag, those of every command included. */
  readonly flags: FlagTable;
  /**
   * Reads the arguments and runs the command.
   * @param onRead told of the log flags before anything else happens
   * @throws {KsvmError} Usage, before anything is sent; whatever else the command throws.
   */
  run(io: CliIo, given: GivenArguments, onRead: (flags: LogFlags) => void): Promise<ExitCode>;
}

interface CommandDefinition<Table extends FlagTable, Operand> {
  readonly path: string;
  readonly description: string;
  readonly examples: readonly string[];
  readonly operands: Operands<Operand>;
  /** The command's own flags. */
  readonly flags: Table;
  run(io: CliIo, flags: FlagsOf<Table> & FlagsOf<typeof GLOBAL_FLAGS>, operands: Operand): Promise<ExitCode>;
}

/** Defines a command from its table of flags. */
export function defineCommand<Table extends FlagTable, Operand>(
  definition: CommandDefinition<Table, Operand>,
): CliCommand {
  const { path, description, examples, operands, flags: own } = definition;
  return {
    path,
    description,
    examples,
    operands,
    flags: { ...GLOBAL_FLAGS, ...own },
    run: async (io, given, onRead) => {
      const [globals, rest] = split(given.flags);
      const common = withVerbosity(readFlags(GLOBAL_FLAGS, globals));
      const flags = { ...common, ...readFlags(own, rest) };
      const read = operands.read(given.operands);
      onRead(common);
      return definition.run(io, flags, read);
    },
  };
}

/** Parts the flags of every command from the command's own. */
function split(given: GivenFlags): readonly [globals: GivenFlags, own: GivenFlags] {
  const entries = Object.entries(given);
  return [
    Object.fromEntries(entries.filter(([name]) => Object.hasOwn(GLOBAL_FLAGS, name))),
    Object.fromEntries(entries.filter(([name]) => !Object.hasOwn(GLOBAL_FLAGS, name))),
  ];
}
