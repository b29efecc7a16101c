import { disablePruneGuard } from "../../prune-guard/manage-prune-guard.ts";
import { NO_OPERANDS } from "../flags/operands.ts";
import { EXIT } from "../render/exit-codes.ts";
import { describeGuardChanges } from "../render/render-guard.ts";
import { defineCommand } from "../shared/command.ts";
import { withCluster } from "../shared/with-cluster.ts";

/** `ksvm guard disable`: takes the watch over storedVersions away. */
export const GUARD_DISABLE_COMMAND = defineCommand({
  path: "guard disable",
  description: "Delete the policies of ksvm guard enable. The freeze of a migration is another guard, and stays.",
  examples: ["ksvm guard disable"],
  operands: NO_OPERANDS,
  flags: {},
  run: (io, flags) =>
    withCluster(io, flags, async (context) => {
      io.stdout.write(describeGuardChanges(await disablePruneGuard(context)));
      return EXIT.done;
    }),
});
