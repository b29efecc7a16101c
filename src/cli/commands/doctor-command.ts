import { randomUUID } from "node:crypto";
import { hostname } from "node:os";
import { systemClock } from "../../clock.ts";
import { type CrdFacts, diagnose, type Finding, type Severity } from "../../doctor/diagnose.ts";
import { readDoctorFacts } from "../../doctor/doctor-facts.ts";
import { type RepairPlan, repairCrd, repairPlans } from "../../doctor/repair.ts";
import { KsvmError } from "../../errors.ts";
import { migrate, type RunSettings } from "../../migrator/migrate.ts";
import type { MigrationResult } from "../../migrator/types.ts";
import type { CallContext } from "../../old/retry/call-context.ts";
import { Retrier } from "../../old/retry/retrier.ts";
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
/** A conversion webhook that is down keeps the objects from being listed, and is a finding. */
const WEBHOOK_PATIENCE_MS = 5_000;

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

/** `ksvm doctor`: finds what is wrong, says what helps, and repairs it where a user asks for that. */
export const DOCTOR_COMMAND = defineCommand({
  path: "doctor",
  description:
    "Find objects that cannot be read, stale storedVersions and what dead runs left behind, and repair them.",
  examples: ["ksvm doctor", "ksvm doctor widgets.example.com --repair"],
  operands: anyNames("plural.group of a CRD; every CRD and the control plane if no name is given"),
  flags: DOCTOR_FLAGS,
  async run(io, flags, given) {
    const { leaseNamespace, output, repair, yes } = flags;
    if (yes && !repair) {
      throw new KsvmError("Usage", "Cannot tell what to do: --yes is for --repair");
    }
    const settings = runSettingsOf(flags);
    const connection = await connect(flags, io.signal);
    try {
      const patience = { maxIdleMs: PATIENCE_MS, webhookWaitMs: WEBHOOK_PATIENCE_MS };
      const retrier = new Retrier({ clock: systemClock, random: Math.random, ...patience });
      const context = { client: connection.client, retrier, signal: io.signal };
      const names = await Promise.all(given.map((name) => fullNameOf(context, name)));
      const found = await look(context, names);
      const repairs = repair ? repairPlans(found.items) : [];
      if (!yes || repairs.length === 0) {
        return show(io, output, found, repair ? repairs : undefined);
      }
      io.onMayFreeze?.();
      const warning = settleWarning(flags);
      if (warning !== undefined) io.stderr.write(`warning: ${warning}\n`);
      // What a repair says while it lasts is no part of the result.
      const ends = { io: { ...io, stdout: io.stderr }, connection, logger: loggerOf(io, flags) };
      const session = { ...ends, format: "text", context, leaseNamespace, settings } as const;
      const codes: ExitCode[] = [];
      // One after the other. What cannot be repaired keeps no other from it.
      for (const { name } of repairs) {
        codes.push(io.signal.aborted ? EXIT.interrupted : await repairOne(session, found, name));
      }
      return worstOf([...codes, show(io, output, await look(context, names))]);
    } finally {
      await connection.close();
    }
  },
});

interface Found {
  readonly items: readonly Finding[];
  readonly crds: readonly CrdFacts[];
}

async function look(context: CallContext, names: readonly string[]): Promise<Found> {
  const facts = await readDoctorFacts(context, names);
  return { items: diagnose(facts), crds: facts.crds };
}

function show(
  { stdout }: CliIo,
  format: ResultFormat,
  { crds, items }: Found,
  repairs?: readonly RepairPlan[],
): ExitCode {
  const result: DoctorResult = { items, lookedAt: crds.length, ...(repairs === undefined ? {} : { repairs }) };
  stdout.write(`${printable(renderDoctor(result, format))}\n`);
  return worstOf(items.map(({ severity }) => EXIT_CODES[severity]));
}

interface RepairSession extends RunSession {
  readonly context: CallContext;
  readonly leaseNamespace: string;
  readonly settings: RunSettings;
}

function repairOne(session: RepairSession, { crds, items }: Found, name: string): Promise<ExitCode> {
  const { context, io, leaseNamespace } = session;
  return reportOn(session, name, async (report) => {
    const facts = crds.find(({ crd }) => crd.metadata.name === name);
    if (facts === undefined) return EXIT.done;
    const repair = {
      ...context,
      identity: `${hostname()}_${randomUUID()}`,
      leaseNamespace,
      migrate: (crdName: string, { force }: { readonly force: boolean }) => migrateOne(session, report, crdName, force),
      tell: (text: string) => void io.stderr.write(`${oneLine(`${name}: ${text}`)}\n`),
    };
    return (await repairCrd(repair, facts, items)) ? EXIT.done : EXIT.incomplete;
  });
}

async function migrateOne(
  { connection, io, settings }: RepairSession,
  { log, reporter }: ResourceReport,
  name: string,
  force: boolean,
): Promise<MigrationResult> {
  const [end] = await migrate(connection.kube, [name], {
    ...settings,
    force,
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
