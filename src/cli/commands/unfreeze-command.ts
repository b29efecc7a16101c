import { STORAGE_MIGRATING_CONDITION } from "../../api/names.ts";
import { systemClock } from "../../clock.ts";
import { isSameMigration } from "../../api/owner.ts";
import {
  breakGlass,
  describeFreezer,
  describeOwner,
  type FreezeFindings,
  inspectFreeze,
  isNothingToLift,
} from "../../old/freeze/break-glass.ts";
import { policyGuardOf } from "../../old/freeze/guard-install.ts";
import { Retrier } from "../../old/retry/retrier.ts";
import { defineCommand } from "../shared/command.ts";
import { confirm, YES_FLAG } from "../shared/confirm.ts";
import { connect } from "../shared/connect.ts";
import { fullNameOf } from "../shared/full-names.ts";
import { EXIT } from "../render/exit-codes.ts";
import { oneName } from "../flags/operands.ts";
import { oneLine } from "../render/printable.ts";

/** A user waits for the answer. */
const PATIENCE_MS = 30_000;

/** `ksvm unfreeze`: lifts a freeze by hand. */
export const UNFREEZE_COMMAND = defineCommand({
  path: "unfreeze",
  description: "Lift the freeze of a CRD by hand. A running migration of it then ends without pruning.",
  examples: ["ksvm unfreeze widgets.example.com", "ksvm unfreeze widgets.example.com --yes"],
  operands: oneName("plural.group of a CRD"),
  flags: YES_FLAG,
  async run(io, flags, name) {
    const { signal, stderr, stdout } = io;
    const connection = await connect(flags, signal);
    try {
      const retrier = new Retrier({ clock: systemClock, random: Math.random, maxIdleMs: PATIENCE_MS });
      const context = { client: connection.client, retrier, signal };
      const findings = await inspectFreeze(context, await fullNameOf(context, name));
      if (isNothingToLift(findings)) {
        stdout.write(lines([`${stateOf(findings)}: nothing to do`, ...findings.notes.map(noteOf)]));
        return EXIT.done;
      }
      stderr.write(lines([...meaningOf(findings), ...findings.notes.map(noteOf)]));
      if (!flags.yes && !(await confirm(io, "Continue?", `lift the freeze of "${findings.name}"`))) {
        stdout.write("nothing was changed\n");
        return EXIT.failed;
      }
      const { isFrozen, lines: said } = await breakGlass(context, findings);
      stdout.write(lines(said));
      return isFrozen ? EXIT.failed : EXIT.done;
    } finally {
      await connection.close();
    }
  },
});

function lines(texts: readonly string[]): string {
  return texts.map((text) => `${oneLine(text)}\n`).join("");
}

function stateOf({ condition, name }: FreezeFindings): string {
  return condition === "explained"
    ? `"${name}" is frozen by its condition ${STORAGE_MIGRATING_CONDITION} alone`
    : `"${name}" is not frozen`;
}

function noteOf(note: string): string {
  return `note: ${note}`;
}

/** What happens if this freeze is lifted. */
function meaningOf(findings: FreezeFindings): readonly string[] {
  const { name, freeze, condition } = findings;
  const owner =
    freeze === undefined
      ? []
      : [
          `"${name}" is frozen by ${describeFreezer(freeze.freezer)}.`,
          "If that migration is still running, it ends Failed (FreezeLifted): nothing is pruned, the objects that were " +
            "rewritten stay so, and it does not freeze again by itself. The storage version can be changed at once.",
        ];
  const stuck =
    condition === "stuck"
      ? [
          `Condition StorageMigrating of "${name}" also freezes it; no migration of Kubernetes' own migrator explains it.`,
        ]
      : [];
  return [...owner, ...stuck, ...policyMeanings(findings)];
}

/** Its policy and the binding of that may belong to two runs. */
function policyMeanings({ freeze, name, policyOwners }: FreezeFindings): readonly string[] {
  const policy = `ValidatingAdmissionPolicy "${policyGuardOf(name).name}"`;
  const freezer = freeze?.freezer;
  const meanings = policyOwners.map((owner) =>
    owner !== undefined && freezer?.kind === "run" && isSameMigration(owner, freezer.owner)
      ? `${policy} of that run guards the freeze.`
      : `${policy} is there, of ${describeOwner(owner)}, which has not frozen "${name}".`,
  );
  return [...new Set(meanings)];
}
