import { KsvmError } from "../../errors.ts";
import { freezerOf, liftForeignFreeze, unfreeze, unfreezeLeftBehind } from "../../freeze/freeze.ts";
import { unlessForbidden } from "../../kube/errors.ts";
import { type Crd, CRDS } from "../../kube/objects.ts";
import { retry } from "../../kube/retry.ts";
import { oneName } from "../flags/operands.ts";
import { EXIT } from "../render/exit-codes.ts";
import { oneLine } from "../render/printable.ts";
import { defineCommand } from "../shared/command.ts";
import { confirm, YES_FLAG } from "../shared/confirm.ts";
import { connect } from "../shared/connect.ts";
import { fullNameOf } from "../shared/full-names.ts";

/**
 * `ksvm unfreeze`: lifts a freeze by hand. That of a run which died is lifted without a question, as the next run would
 * do; that of one that lives, or of another client, after a confirmation. With `--yes` nobody is asked or watched.
 */
export const UNFREEZE_COMMAND = defineCommand({
  path: "unfreeze",
  description: "Lift the freeze of a CRD by hand. A running migration of it then ends without pruning.",
  examples: ["ksvm unfreeze widgets.example.com", "ksvm unfreeze widgets.example.com --yes"],
  operands: oneName("plural.group of a CRD"),
  flags: YES_FLAG,
  async run(io, flags, given) {
    const { signal } = io;
    const { close, kube } = await connect(flags, signal);
    const say = (text: string): void => void io.stdout.write(`${oneLine(text)}\n`);
    const explain = (text: string): void => void io.stderr.write(`${oneLine(text)}\n`);
    const read = (name: string): Promise<Crd | undefined> =>
      retry(kube, () => kube.find<Crd>(`${CRDS}/${encodeURIComponent(name)}`, { signal }), { signal });
    try {
      const name = await fullNameOf({ client: kube, signal }, given);
      const crd = await read(name);
      if (crd === undefined) {
        const text = `Cannot unfreeze "${name}": no CustomResourceDefinition has this name (expected plural.group)`;
        throw new KsvmError("ResourceNotFound", text);
      }
      const freezer = freezerOf(crd.metadata);
      if (freezer === undefined) {
        say(`"${name}" is not frozen: nothing to do`);
        return EXIT.done;
      }
      if (freezer === "other") {
        explain(`"${name}" is frozen by something other than ksvm.`);
      } else {
        const { identity, lease, since } = freezer;
        explain(`"${name}" is frozen by ${identity} (Lease "${lease}") since ${since}.`);
        // Who may not see the Lease cannot tell whether the run lives.
        const isLifted = !flags.yes && (await unlessForbidden(unfreezeLeftBehind(kube, crd, signal))) === true;
        // It may have ended while its Lease was watched.
        const now = isLifted ? undefined : await read(name);
        if (now === undefined || freezerOf(now.metadata) === undefined) {
          say(`its run is over: "${name}" is no longer frozen`);
          return EXIT.done;
        }
      }
      explain(
        "If that migration is still running, it ends Failed (FreezeLifted): nothing is pruned, the objects that were " +
          "rewritten stay so, and it does not freeze again by itself. The storage version can be changed at once.",
      );
      if (!flags.yes && !(await confirm(io, "Continue?", `lift the freeze of "${name}"`))) {
        say("nothing was changed");
        return EXIT.failed;
      }
      if (freezer === "other") await liftForeignFreeze(kube, name, signal);
      else await unfreeze(kube, name, freezer.identity);
      // A user may take their time before they confirm.
      const now = await read(name);
      if (now !== undefined && freezerOf(now.metadata) !== undefined) {
        say(`left the freeze of "${name}": by now it is that of another run or client; run this again`);
        return EXIT.failed;
      }
      say(`"${name}" is no longer frozen`);
      return EXIT.done;
    } finally {
      await close();
    }
  },
});
