import { defineCommand } from "../shared/command.ts";
import { SUSPENSION_FLAGS, SUSPENSION_OPERANDS } from "../flags/suspension-flags.ts";
import { toggle } from "../flags/kinds.ts";
import { changeSuspension } from "./change-suspension.ts";

/** `ksvm resume`: continues one migration or all of them. */
export const RESUME_COMMAND = defineCommand({
  path: "resume",
  description: "Continue a suspended migration where it stopped.",
  examples: ["ksvm resume widgets.example.com", "ksvm resume --all"],
  operands: SUSPENSION_OPERANDS,
  flags: { all: toggle({ help: "every suspended migration" }), ...SUSPENSION_FLAGS },
  run: (io, flags, name) => changeSuspension(io, name, { suspend: false, flags }),
});
