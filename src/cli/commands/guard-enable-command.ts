import { ALLOW_PRUNE_ANNOTATION } from "../../api/names.ts";
import { enablePruneGuard } from "../../prune-guard/manage-prune-guard.ts";
import { PRUNE_GUARD_MODES } from "../../prune-guard/prune-policies.ts";
import { choice, repeated } from "../flags/kinds.ts";
import { NO_OPERANDS } from "../flags/operands.ts";
import { parseUserName } from "../flags/parsers.ts";
import { EXIT } from "../render/exit-codes.ts";
import { describeGuardChanges } from "../render/render-guard.ts";
import { defineCommand } from "../shared/command.ts";
import { withCluster } from "../shared/with-cluster.ts";

/** `ksvm guard enable`: has API servers watch over storedVersions. */
export const GUARD_ENABLE_COMMAND = defineCommand({
  path: "guard enable",
  description:
    "Have API servers watch over status.storedVersions of every CRD: an update that removes a version is warned about and audited, or " +
    `denied, unless it comes from a run of ksvm, or the annotation ${ALLOW_PRUNE_ANNOTATION} allows it.`,
  examples: ["ksvm guard enable"],
  operands: NO_OPERANDS,
  flags: {
    mode: choice(PRUNE_GUARD_MODES, {
      placeholder: "mode",
      default: "warn",
      help: "what becomes of an update that removes a version and that nothing says is right",
    }),
    "allow-user": repeated(parseUserName, {
      placeholder: "user",
      help:
        "name of a user whose prunes are taken for right, such as system:serviceaccount:capi-system:capi-manager; can be repeated. " +
        "Users of an earlier call that are not named again are no longer allowed",
    }),
  },
  run: (io, { mode, allowUser: allowedUsers = [], ...flags }) =>
    withCluster(io, flags, async (context) => {
      const { changes, restores } = await enablePruneGuard(context, { mode, allowedUsers });
      io.stdout.write(describeGuardChanges(changes));
      if (mode === "deny" && !restores) {
        io.stderr.write(
          "note: this API server does not serve MutatingAdmissionPolicies (Kubernetes 1.36 and newer do): where a migration of " +
            "Kubernetes' own migrator fails, its prune is denied again and again, and the CRD stays frozen until you run ksvm unfreeze " +
            "and ksvm migrate\n",
        );
      }
      return EXIT.done;
    }),
});
