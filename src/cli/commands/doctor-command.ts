import { randomUUID } from "node:crypto";
import { hostname } from "node:os";
import { SeenServers } from "../../old/apiservers/seen-servers.ts";
import { systemClock } from "../../clock.ts";
import { diagnose } from "../../doctor/diagnose.ts";
import { type DoctorContext, readDoctorFacts } from "../../doctor/doctor-facts.ts";
import type { Finding, Severity } from "../../doctor/doctor-types.ts";
import { repairCrd } from "../../doctor/repair.ts";
import { type RepairPlan, repairPlans } from "../../doctor/repair-steps.ts";
import { KsvmError } from "../../errors.ts";
import { migrateBesideInTree } from "../../old/migrator/beside-in-tree.ts";
import { Retrier } from "../../old/retry/retrier.ts";
import type { FlagsOf, FlagTable } from "../flags/flag.ts";
import { toggle } from "../flags/kinds.ts";
import { MIGRATION_FLAGS } from "../flags/migration-flags.ts";
import { anyNames } from "../flags/operands.ts";
import { LEASE_NAMESPACE_FLAG, RESULT_OUTPUT_FLAG, type ResultFormat } from "../flags/run-flags.ts";
import { runSettingsOf } from "../flags/run-settings.ts";
import { EXIT, type ExitCode, worstOf } from "../render/exit-codes.ts";
import type { CliIo } from "../render/io.ts";
import { oneLine, printable } from "../render/printable.ts";
import { type DoctorResult, renderDoctor } from "../render/render-doctor.ts";
import { defineCommand } from "../shared/command.ts";
import { connect } from "../shared/connect.ts";
import { fullNameOf } from "../shared/full-names.ts";
import { loggerOf } from "../shared/logger-of.ts";
import { type ResourceReport, type RunSession, reportOn, withRun } from "../shared/resource-run.ts";

/** Milliseconds: a user waits for the answer. */
const PATIENCE_MS = 30_000;
/** A conversion webhook that is down keeps the objects from being listed, and is a finding. */
const WEBHOOK_PATIENCE_MS = 5_000;
/** Only this process lifts its freeze: it keeps trying for an hour while the API server is down. */
const CLEANUP_PATIENCE_MS = 3_600_000;

const EXIT_CODES: Readonly<Record<Severity, ExitCode>> = {
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

type DoctorFlags = FlagsOf<typeof DOCTOR_FLAGS>;

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
    if (yes && !repair) {
      throw new KsvmError("Usage", "Cannot tell what to do: --yes is for --repair");
    }
    const seen = new SeenServers(systemClock);
    const connection = await connect(flags, io.signal, seen.observer);
    try {
      const patience = { maxIdleMs: PATIENCE_MS, webhookWaitMs: WEBHOOK_PATIENCE_MS };
      const retrier = new Retrier({ clock: systemClock, random: Math.random, ...patience });
      const context = { client: connection.client, clock: systemClock, retrier, signal: io.signal };
      const names = await Promise.all(given.map((name) => fullNameOf(context, name)));
      const found = await look(context, names);
      const repairs = repair ? repairPlans(found.items) : [];
      if (!yes || repairs.length === 0) {
        return show(io, output, { ...found, ...(repair ? { repairs } : {}) });
      }
      io.onMayFreeze?.();
      // What a repair says while it lasts is no part of the result.
      const ends = { io: { ...io, stdout: io.stderr }, connection, logger: loggerOf(io, flags) };
      const session = { ...ends, format: "text", seen } as const;
      const code = await repairAll(session, { context, flags, items: found.items, plans: repairs });
      return worstOf([code, show(io, output, await look(context, names))]);
    } finally {
      await connection.close();
    }
  },
});

async function look(
  context: DoctorContext,
  names: readonly string[],
): Promise<Pick<DoctorResult, "items" | "lookedAt">> {
  const facts = await readDoctorFacts(context, names);
  return { items: diagnose(facts), lookedAt: facts.crds.length };
}

function show({ stdout }: CliIo, format: ResultFormat, result: DoctorResult): ExitCode {
  stdout.write(`${printable(renderDoctor(result, format))}\n`);
  return worstOf(result.items.map(({ severity }) => EXIT_CODES[severity]));
}

interface Repairs {
  readonly context: DoctorContext;
  readonly flags: DoctorFlags;
  readonly items: readonly Finding[];
  readonly plans: readonly RepairPlan[];
}

/** One after the other. What cannot be repaired keeps no other from it. */
async function repairAll(session: RunSession, { plans, ...repairs }: Repairs): Promise<ExitCode> {
  const { io } = session;
  const codes: ExitCode[] = [];
  for (const { name } of plans) {
    codes.push(io.signal.aborted ? EXIT.interrupted : await repairOne(session, repairs, name));
  }
  return worstOf(codes);
}

function repairOne(
  session: RunSession,
  { context, flags, items }: Omit<Repairs, "plans">,
  name: string,
): Promise<ExitCode> {
  const { leaseNamespace } = flags;
  return reportOn(session, name, async (report) => {
    const repair = {
      ...context,
      identity: `${hostname()}_${randomUUID()}`,
      leaseNamespace,
      onTakeOver: () => session.seen.tookOver(),
      migrate: (crd: string, { force }: { readonly force: boolean }) =>
        migrateOne(session, report, { flags, force, crd }),
      tell: (text: string) => void session.io.stderr.write(`${oneLine(`${name}: ${text}`)}\n`),
    };
    return (await repairCrd(repair, name, items)) ? EXIT.done : EXIT.incomplete;
  });
}

async function migrateOne(
  session: RunSession,
  report: ResourceReport,
  { crd, flags, force }: { readonly flags: DoctorFlags; readonly force: boolean; readonly crd: string },
): ReturnType<typeof migrateBesideInTree> {
  const run = {
    settings: runSettingsOf(flags, { crdMode: "manage", leaseNamespace: flags.leaseNamespace }),
    dryRun: false,
    force,
    purpose: "ksvm doctor",
    cleanupPatience: { ms: CLEANUP_PATIENCE_MS, interrupted: session.io.signal },
  };
  const result = await withRun(session, report, run, (context) =>
    migrateBesideInTree(context, crd, flags.webhookWaitMs),
  );
  report.reporter.result(result);
  return result;
}
