import { pruneGuardStatus } from "../../prune-guard/manage-prune-guard.ts";
import { NO_OPERANDS } from "../flags/operands.ts";
import { RESULT_OUTPUT_FLAG } from "../flags/run-flags.ts";
import { EXIT } from "../render/exit-codes.ts";
import { printable } from "../render/printable.ts";
import { renderGuard } from "../render/render-guard.ts";
import { defineCommand } from "../shared/command.ts";
import { withCluster } from "../shared/with-cluster.ts";

/** `ksvm guard status`: shows whether API servers watch over storedVersions. */
export const GUARD_STATUS_COMMAND = defineCommand({
  path: "guard status",
  description:
    "Show whether API servers watch over status.storedVersions, what they do, and which CRDs have an annotation that allows a prune. " +
    "Exit code 1 where the guard is off, or is not as ksvm writes it.",
  examples: ["ksvm guard status", "ksvm guard status -o yaml"],
  operands: NO_OPERANDS,
  flags: RESULT_OUTPUT_FLAG,
  run: (io, { output, ...flags }) =>
    withCluster(io, flags, async (context) => {
      const status = await pruneGuardStatus(context);
      io.stdout.write(`${printable(renderGuard(status, output))}\n`);
      return status.state === "off" || status.state === "changed" ? EXIT.failed : EXIT.done;
    }),
});
