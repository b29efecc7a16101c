import { KsvmError } from "../../errors.ts";
import type { Operands } from "../flags/operands.ts";
import { bashCompletion } from "../completion/bash.ts";
import { completionsOf } from "../completion/completions.ts";
import { fishCompletion } from "../completion/fish.ts";
import { zshCompletion } from "../completion/zsh.ts";
import { EXIT } from "../render/exit-codes.ts";
import { type CliCommand, defineCommand } from "../shared/command.ts";

const SHELLS = { bash: bashCompletion, zsh: zshCompletion, fish: fishCompletion } as const;
type Shell = keyof typeof SHELLS;

const SHELL: Operands<Shell> = {
  syntax: "<shell>",
  help: "bash, zsh or fish",
  read: ([shell = ""]) => {
    if (!Object.hasOwn(SHELLS, shell)) {
      throw new KsvmError("Usage", `Cannot complete for "${shell}": expected bash, zsh or fish`);
    }
    return shell as Shell;
  },
};

/**
 * `ksvm completion`: prints a script by which a shell completes commands, flags and their values.
 * @param commands every command, this one included
 */
export function completionCommand(commands: () => readonly CliCommand[]): CliCommand {
  return defineCommand({
    path: "completion",
    description: "Print a script by which a shell completes commands, flags and their values. Contacts no cluster.",
    examples: [
      "source <(ksvm completion bash)",
      'ksvm completion zsh > "${fpath[1]}/_ksvm"',
      "ksvm completion fish > ~/.config/fish/completions/ksvm.fish",
    ],
    operands: SHELL,
    flags: {},
    run: async ({ stdout }, _flags, shell) => {
      stdout.write(SHELLS[shell](completionsOf(commands())));
      return EXIT.done;
    },
  });
}
