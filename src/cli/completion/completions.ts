import type { Flag } from "../flags/flag.ts";
import type { CliCommand } from "../shared/command.ts";

/** A flag as a shell completes it. */
export interface CompletedFlag {
  /** Without the dashes. */
  readonly name: string;
  /** One letter. @default there is no short form */
  readonly short?: string | undefined;
  readonly help: string;
  /** What follows the flag: nothing, one of some words, a file, or anything. */
  readonly value: "none" | "file" | "any" | readonly string[];
}

/** A command as a shell completes it. */
export interface CompletedCommand {
  /** Its words, such as `certs ensure`. */
  readonly path: string;
  readonly help: string;
  readonly flags: readonly CompletedFlag[];
}

const HELP: CompletedFlag = { name: "help", short: "h", help: "display help for command", value: "none" };

/** What shells complete of these commands. */
export function completionsOf(commands: readonly CliCommand[]): readonly CompletedCommand[] {
  return commands.map(({ path, description, flags }) => ({
    path,
    help: firstSentence(description),
    flags: [...Object.entries(flags).map(([name, flag]) => completedFlag(name, flag)), HELP],
  }));
}

function completedFlag(name: string, { help, short, placeholder, choices }: Flag<unknown>): CompletedFlag {
  const free = placeholder === "path" ? "file" : "any";
  return { name, short, help: firstSentence(help), value: placeholder === undefined ? "none" : (choices ?? free) };
}

function firstSentence(text: string): string {
  return text.split(/(?<=\.) |; /)[0] ?? text;
}

/** The words that may follow others: the first words of all commands, and the second words of groups by their first. */
export function wordsAfter(commands: readonly CompletedCommand[]): ReadonlyMap<string, readonly CompletedCommand[]> {
  const groups = new Map<string, CompletedCommand[]>();
  for (const command of commands) {
    const words = command.path.split(" ");
    const parent = words.slice(0, -1).join(" ");
    groups.set(parent, [...(groups.get(parent) ?? []), command]);
  }
  return groups;
}

/** The last word of a command's path. */
export function lastWordOf({ path }: CompletedCommand): string {
  return path.split(" ").at(-1) ?? "";
}
