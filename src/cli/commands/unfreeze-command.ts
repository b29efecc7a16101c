import { systemClock } from "../../clock.ts";
import { breakGlass, type FreezeFindings, inspectFreeze, isNothingToLift } from "../../migrator/break-glass.ts";
import { Retrier } from "../../migrator/retrier.ts";
import { confirm } from "../confirm.ts";
import { type ConnectOptions, connect } from "../connect.ts";
import { EXIT, type ExitCode } from "../exit-codes.ts";
import type { CliIo } from "../io.ts";

/** The options of `ksvm unfreeze`. */
export interface UnfreezeOptions extends ConnectOptions {
  /** Does not ask. */
  readonly yes?: boolean;
}

/** Somebody sits and waits. */
const PATIENCE_MS = 30_000;

/**
 * `ksvm unfreeze`: takes a freeze off by hand.
 * @throws {KsvmError} ResourceNotFound where there is no such CRD, and where the API server does not take it.
 */
export async function unfreezeCommand(io: CliIo, name: string, options: UnfreezeOptions): Promise<ExitCode> {
  const { signal, stderr, stdout } = io;
  const connection = await connect(options, signal);
  try {
    const retrier = new Retrier({ clock: systemClock, random: Math.random, maxIdleMs: PATIENCE_MS });
    const context = { client: connection.client, retrier, signal };
    const findings = await inspectFreeze(context, name);
    if (isNothingToLift(findings)) {
      stdout.write(lines([`"${name}" is not frozen: nothing to do`, ...findings.notes.map(noteOf)]));
      return EXIT.done;
    }
    stderr.write(lines([...meaningOf(findings), ...findings.notes.map(noteOf)]));
    if (options.yes !== true && !(await confirm(io, "Go on?"))) {
      stdout.write("nothing was changed\n");
      return EXIT.failed;
    }
    stdout.write(lines(await breakGlass(context, findings)));
    return EXIT.done;
  } finally {
    await connection.close();
  }
}

function lines(texts: readonly string[]): string {
  return texts.map((text) => `${text}\n`).join("");
}

function noteOf(note: string): string {
  return `note: ${note}`;
}

/** What lifting this freeze leads to. */
function meaningOf({ name, frozenBy, hasPolicy, condition }: FreezeFindings): readonly string[] {
  const owner =
    frozenBy === undefined
      ? []
      : [
          `"${name}" is frozen by ${frozenBy}.`,
          "If that migration is still running, it ends Failed (FreezeLifted): nothing is pruned, the objects that were " +
            "rewritten stay so, and it does not freeze again by itself. The storage version can be changed at once.",
        ];
  const stuck =
    condition === "stuck"
      ? [
          `Condition StorageMigrating of "${name}" freezes it, too; no migration of Kubernetes' own migrator explains it.`,
        ]
      : [];
  const policy = hasPolicy ? [`A ValidatingAdmissionPolicy of an earlier run on "${name}" is there.`] : [];
  return [...owner, ...stuck, ...policy];
}
