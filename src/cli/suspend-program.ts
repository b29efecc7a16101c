import type { Command } from "commander";
import { SYSTEM_NAMESPACE } from "../api/migration.ts";
import { type CommandParts, withGlobalOptions } from "./common-options.ts";
import { suspendCommand, type SuspendOptions } from "./commands/suspend-command.ts";

/** Adds `ksvm suspend` and `ksvm resume`. */
export function addSuspend(program: Command, parts: CommandParts): void {
  addOne(program, parts, {
    verb: "suspend",
    description: "Stop a migration and lift its freeze; it keeps its place and goes on after ksvm resume.",
    all: "every migration, those that come later too",
  });
  addOne(program, parts, {
    verb: "resume",
    description: "Have a suspended migration go on where it stopped.",
    all: "every migration that is suspended",
  });
}

function addOne(
  program: Command,
  { io, onExit }: CommandParts,
  {
    verb,
    description,
    all,
  }: { readonly verb: "suspend" | "resume"; readonly description: string; readonly all: string },
): void {
  withGlobalOptions(program.command(verb))
    .description(description)
    .argument("[name]", "a migration, or a resource (plural.group): all of its migrations that are not finished")
    .option("--all", all)
    .option("--namespace <namespace>", "where the controller is installed", SYSTEM_NAMESPACE)
    .action(async (name: string | undefined, options: SuspendOptions) => {
      onExit(await suspendCommand(io, name, { suspend: verb === "suspend", options }));
    });
}
