import { defineCommand } from "../shared/command.ts";
import { SUSPENSION_FLAGS, SUSPENSION_OPERANDS } from "../flags/suspension-flags.ts";
import { toggle } from "../flags/kinds.ts";
import { changeSuspension } from "./change-suspension.ts";

/** `ksvm suspend`: stops one migration or all of them. */
export const SUSPEND_COMMAND = defineCommand({
  path: "suspend",
  description: "Stop a migration and lift its freeze. It keeps its progress and continues after ksvm resume.",
  examples: ["ksvm suspend widgets.example.com", "ksvm suspend --all"],
  operands: SUSPENSION_OPERANDS,
  flags: { all: toggle({ help: "every migration, including later ones" }), ...SUSPENSION_FLAGS },
  run: (io, flags, name) => changeSuspension(io, name, { suspend: true, flags }),
});
