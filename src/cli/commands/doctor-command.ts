import { randomUUID } from "node:crypto";
import { hostname } from "node:os";
import { KsvmError } from "../../errors.ts";
import { examine, type Finding, toRepair } from "../../inventory/doctor.ts";
import { REPAIR_STEPS, repairCrd } from "../../inventory/repair.ts";
import { migrate, type RunSettings } from "../../migrator/migrate.ts";
import type { MigrationResult } from "../../migrator/types.ts";
import type { FlagTable } from "../flags/flag.ts";
import { toggle } from "../flags/kinds.ts";
import { MIGRATION_FLAGS } from "../flags/migration-flags.ts";
import { anyNames } from "../flags/operands.ts";
import { LEASE_NAMESPACE_FLAG, RESULT_OUTPUT_FLAG, type ResultFormat } from "../flags/run-flags.ts";
import { runSettingsOf, settleWarning } from "../flags/run-settings.ts";
import { EXIT, type ExitCode, worstOf } from "../render/exit-codes.ts";
import type { CliIo } from "../render/io.ts";
import { oneLine, printable } from "../render/printable.ts";
import { type DoctorResult, renderDoctor } from "../render/render-doctor.ts";
import { defineCommand } from "../shared/command.ts";
import { connect } from "../shared/connect.ts";
import { fullNameOf } from "../shared/full-names.ts";
import { loggerOf } from "../shared/logger-of.ts";
import { type ResourceReport, type RunSession, reportOn } from "../shared/resource-run.ts";

/** Milliseconds: a user waits for the answer. */
const PATIENCE_MS = 30_000;

const EXIT_CODES: Readonly<Record<Finding["severity"], ExitCode>> = {
  data: EXIT.wouldFail,
  action: EXIT.needsMigration,
  unknown: EXIT.failed,
};

const DOCTOR_FLAGS = {
  repair: toggle({ help: "print what a repair would do, step by step; change nothing without --yes" }),
  yes: toggle({ short: "y", help: "with --repair: do it" }),
  ...RESULT_OUTPUT_FLAG,
  ...MIGRATION_FLAGS,
  ...LEASE_NAMESPACE_FLAG,
} satisfies FlagTable;

/** `ksvm doctor`: finds what is wrong, says what helps, and repairs it where a user asks for that. */
export const DOCTOR_COMMAND = defineCommand({
  path: "doctor",
  description:
    "Find objects that cannot be read, stale storedVersions and what dead runs left behind, and repair them.",
  examples: ["ksvm doctor", "ksvm doctor widgets.example.com --repair"],
  operands: anyNames("plural.group of a CRD; every CRD and the control plane if no name is given"),
  flags: DOCTOR_FLAGS,
  async run(io, flags, given) {
    const { output, repair, yes } = flags;
    const { signal } = io;
    if (yes && !repair) {
      throw new KsvmError("Usage", "Cannot tell what to do: --yes is for --repair");
    }
    const settings = runSettingsOf(flags);
    const connection = await connect(flags, signal);
    const { kube } = connection;
    try {
      const lookup = { client: kube, forMs: PATIENCE_MS, signal };
      const names = await Promise.all(given.map((name) => fullNameOf(lookup, name)));
      const found = await examine(kube, names, signal);
      const repairs = repair ? toRepair(found.items) : [];
      if (!yes || repairs.length === 0) {
        const plans = repairs.map((name) => ({ name, steps: REPAIR_STEPS }));
        return show(io, output, { ...found, ...(repair ? { repairs: plans } : {}) });
      }
      io.onMayFreeze?.();
      const warning = settleWarning(flags);
      if (warning !== undefined) io.stderr.write(`warning: ${warning}\n`);
      // What a repair says while it lasts is no part of the result.
      const ends = { io: { ...io, stdout: io.stderr }, connection, logger: loggerOf(io, flags) };
      const session = { ...ends, format: "text", settings } as const;
      const codes: ExitCode[] = [];
      // One after the other. What cannot be repaired keeps no other from it.
      for (const name of repairs) {
        codes.push(signal.aborted ? EXIT.interrupted : await repairOne(session, name));
      }
      return worstOf([...codes, show(io, output, await examine(kube, names, signal))]);
    } finally {
      await connection.close();
    }
  },
});

function show({ stdout }: CliIo, format: ResultFormat, result: DoctorResult): ExitCode {
  stdout.write(`${printable(renderDoctor(result, format))}\n`);
  return worstOf(result.items.map(({ severity }) => EXIT_CODES[severity]));
}

interface RepairSession extends RunSession {
  readonly settings: RunSettings;
}

function repairOne(session: RepairSession, name: string): Promise<ExitCode> {
  const { connection, io } = session;
  return reportOn(session, name, async (report) => {
    const context = {
      client: connection.kube,
      migrate: (crdName: string) => migrateOne(session, report, crdName),
      signal: io.signal,
      tell: (text: string) => void io.stderr.write(`${oneLine(`${name}: ${text}`)}\n`),
    };
    return (await repairCrd(context, name)) ? EXIT.done : EXIT.incomplete;
  });
}

async function migrateOne(
  { connection, io, settings }: RepairSession,
  { log, reporter }: ResourceReport,
  name: string,
): Promise<MigrationResult> {
  const [end] = await migrate(connection.kube, [name], {
    ...settings,
    force: true,
    identity: `${hostname()}_${randomUUID()}`,
    signal: io.signal,
    onEvent: (event) => {
      log.debug({ event }, "Run event");
      reporter.event(event);
    },
  });
  if (end === undefined || "error" in end) throw end?.error;
  reporter.result(end.result);
  return end.result;
}
