import { readPlan } from "../../inventory/plan.ts";
import { choice, toggle } from "../flags/kinds.ts";
import { anyNames } from "../flags/operands.ts";
import { EXIT } from "../render/exit-codes.ts";
import { oneLine, printable } from "../render/printable.ts";
import { PLAN_FORMATS, renderPlan } from "../render/render-plan.ts";
import { defineCommand } from "../shared/command.ts";
import { connect } from "../shared/connect.ts";
import { fullNameOf } from "../shared/full-names.ts";

/** `ksvm plan`: shows what migrations would do, changes nothing. */
export const PLAN_COMMAND = defineCommand({
  path: "plan",
  description: "Show what migrations would do, without changing anything.",
  examples: [
    "ksvm plan --stale",
    "ksvm plan widgets.example.com -o wide",
    "ksvm plan --stale -o name | xargs -r ksvm migrate",
  ],
  operands: anyNames("plural.group of a CRD or a built-in resource; all resources if no name is given"),
  flags: {
    stale: toggle({ help: "only resources with the action migrate or blocked" }),
    "crds-only": toggle({ help: "only CRDs" }),
    output: choice(PLAN_FORMATS, { short: "o", placeholder: "format", default: "table", help: "output format" }),
  },
  async run(io, flags, given) {
    const { signal } = io;
    const { close, kube } = await connect(flags, signal);
    try {
      const lookup = { client: kube, signal };
      const names: string[] = [];
      for (const name of given) names.push(await fullNameOf(lookup, name));
      const { crdsOnly, stale } = flags;
      const onUnavailable = (groupVersion: string, reason: string): void => {
        io.stderr.write(`warning: ${groupVersion} is left out: its API server says: ${oneLine(reason)}\n`);
      };
      const selection = { crdsOnly, stale, onUnavailable, ...(names.length === 0 ? {} : { names }) };
      const text = renderPlan(await readPlan(kube, selection, signal), flags.output);
      io.stdout.write(flags.output === "name" && text === "" ? "" : `${printable(text)}\n`);
      return EXIT.done;
    } finally {
      await close();
    }
  },
});
