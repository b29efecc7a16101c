import { KsvmError } from "../../errors.ts";
import { clearCondition, isStorageMigrating, liftForeignFreeze } from "../../freeze/by-hand.ts";
import { freezerOf, unfreeze, unfreezeLeftBehind } from "../../freeze/freeze.ts";
import type { Client } from "../../kube/client.ts";
import { unlessForbidden } from "../../kube/errors.ts";
import { type Crd, CRDS } from "../../kube/objects.ts";
import { retry } from "../../kube/retry.ts";
import { inTreeMigrations, inTreeResource, isInTreeUnfinished } from "../../migrator/in-tree.ts";
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
      const note = isStorageMigrating(crd) ? await explanation(kube, name, signal) : undefined;
      const isStuck = isStorageMigrating(crd) && note === undefined;
      const freezer = freezerOf(crd.metadata);
      if (freezer === undefined && !isStuck) {
        const state = note === undefined ? "not frozen" : "frozen by its condition StorageMigrating alone";
        say(`"${name}" is ${state}: nothing to do`);
        if (note !== undefined) say(`note: ${note}`);
        return EXIT.done;
      }
      if (note !== undefined) explain(`note: ${note}`);

      let isHeld = freezer !== undefined;
      if (freezer !== undefined && freezer !== "other") {
        const { identity, lease, since } = freezer;
        explain(`"${name}" is frozen by ${identity} (Lease "${lease}") since ${since}.`);
        if (!flags.yes) {
          // Who may not see the Lease cannot tell whether the run lives.
          const isLifted = (await unlessForbidden(unfreezeLeftBehind(kube, crd, signal))) === true;
          // It may have ended while its Lease was watched.
          const now = isLifted ? undefined : await read(name);
          isHeld = now !== undefined && freezerOf(now.metadata) !== undefined;
        }
        if (!isHeld) say(`its run is over: "${name}" is no longer frozen`);
      } else if (freezer === "other") {
        explain(`"${name}" is frozen by something other than ksvm.`);
      }
      if (!isHeld && !isStuck) return EXIT.done;

      if (isHeld) {
        explain(
          "If that migration is still running, it ends Failed (FreezeLifted): nothing is pruned, the objects that were " +
            "rewritten stay so, and it does not freeze again by itself. The storage version can be changed at once.",
        );
      }
      if (isStuck) {
        const why = "no migration of Kubernetes' own migrator explains it";
        explain(`Condition StorageMigrating of "${name}" freezes it; ${why}.`);
      }
      if (!flags.yes && !(await confirm(io, "Continue?", `lift the freeze of "${name}"`))) {
        say("nothing was changed");
        return EXIT.failed;
      }

      if (freezer === "other") await liftForeignFreeze(kube, name, signal);
      else if (freezer !== undefined && isHeld) await unfreeze(kube, name, freezer.identity);
      if (isStuck) {
        const listed = await clearCondition(kube, name, signal);
        const again = (listed ?? []).length === 0 ? "" : `, and listed ${listed?.join(", ")} in storedVersions again`;
        if (listed !== undefined) say(`cleared condition StorageMigrating of "${name}"${again}`);
      }
      // A user may take their time before they confirm.
      const now = await read(name);
      if (now !== undefined && freezerOf(now.metadata) !== undefined) {
        say(`left the freeze of "${name}": by now it is that of another run or client; run this again`);
        return EXIT.failed;
      }
      if (isHeld) say(`"${name}" is no longer frozen`);
      return EXIT.done;
    } finally {
      await close();
    }
  },
});

/** What keeps the condition of Kubernetes' own migrator; `undefined` where no migration of it does. */
async function explanation(client: Client, name: string, signal: AbortSignal): Promise<string | undefined> {
  const all = await inTreeMigrations(client, signal);
  if (all === undefined) {
    return "cannot look for what explains condition StorageMigrating: this user may not list migrations of Kubernetes";
  }
  const running = all.find((one) => isInTreeUnfinished(one) && inTreeResource(one) === name);
  if (running === undefined) return undefined;
  const by = `storageversionmigrations.storagemigration.k8s.io "${running.metadata.name}"`;
  return `condition StorageMigrating stays: ${by} is not finished; delete it to end it`;
}
