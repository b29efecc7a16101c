import { randomUUID } from "node:crypto";
import { hostname } from "node:os";
import { systemClock } from "../../clock.ts";
import { KsvmError } from "../../errors.ts";
import { migrate, type RunSettings } from "../../migrator/migrate.ts";
import { type Resource, resourceName } from "../../kube/objects.ts";
import { assertMayMigrate, CleanupFailed } from "../../migrator/migrate-crd.ts";
import { assertRights, rightsForDryRun } from "../../migrator/rights.ts";
import type { MigrationEnd } from "../../migrator/types.ts";
import type { FlagsOf, FlagTable } from "../flags/flag.ts";
import { repeated, toggle } from "../flags/kinds.ts";
import { MIGRATION_FLAGS } from "../flags/migration-flags.ts";
import { anyNames } from "../flags/operands.ts";
import { anyText } from "../flags/parsers.ts";
import { LEASE_NAMESPACE_FLAG, RUN_OUTPUT_FLAG } from "../flags/run-flags.ts";
import { runSettingsOf, settleWarning } from "../flags/run-settings.ts";
import { eventLine } from "../render/document.ts";
import { EXIT, type ExitCode, worstOf } from "../render/exit-codes.ts";
import { oneLine } from "../render/printable.ts";
import { exitCodeOf } from "../render/report-error.ts";
import { describeRunSummary, runSummaryOf } from "../render/run-summary.ts";
import { defineCommand } from "../shared/command.ts";
import { connect } from "../shared/connect.ts";
import { fullNames } from "../shared/full-names.ts";
import { loggerOf } from "../shared/logger-of.ts";
import { reportFor, reportOn, type ResourceReport, type RunSession } from "../shared/resource-run.ts";
import { followMigration, isControllerRunning } from "./follow-migration.ts";
import { migrateFiles } from "./migrate-files.ts";
import { staleResources } from "./stale-resources.ts";

const MIGRATE_FLAGS = {
  filename: repeated(anyText, {
    short: "f",
    placeholder: "path",
    help:
      "file or directory with CRDs, - for stdin: take each CRD to the point where its file can be applied; can be " +
      "repeated",
  }),
  apply: toggle({ help: "with -f: write the file itself, too" }),
  all: toggle({
    help:
      "migrate every CRD whose storedVersions is not exactly its storage version, or may have been pruned without a " +
      "success, and every built-in resource whose StorageState shows that objects may be stored in another version. " +
      "CRDs in a state that stops everything, such as those being deleted, are named and left out",
  }),
  "dry-run": toggle({ help: "send every write as a server-side dry run; change nothing" }),
  standalone: toggle({ help: "migrate from this process even if a controller runs in the cluster" }),
  force: toggle({ help: "rewrite the objects of a CRD that is already clean" }),
  "ignore-not-found": toggle({
    help: "a named resource that the cluster does not have is no error, as before the first install",
  }),
  ...RUN_OUTPUT_FLAG,
  ...MIGRATION_FLAGS,
  ...LEASE_NAMESPACE_FLAG,
} satisfies FlagTable;

type MigrateFlags = FlagsOf<typeof MIGRATE_FLAGS>;

interface MigrateSession extends RunSession {
  readonly flags: MigrateFlags;
  readonly settings: RunSettings;
}

/** `ksvm migrate`: migrates the named resources. CRDs share one wait, and each ends by itself. */
export const MIGRATE_COMMAND = defineCommand({
  path: "migrate",
  description: "Freeze the storage version, rewrite every object, prune storedVersions, unfreeze.",
  examples: [
    "ksvm migrate widgets.example.com",
    "ksvm migrate --all",
    "ksvm migrate widgets.example.com --dry-run",
    "ksvm migrate -f crds/ --apply",
  ],
  operands: anyNames("plural.group of a CRD or a built-in resource"),
  flags: MIGRATE_FLAGS,
  async run(io, flags, given) {
    assertUsable(flags, given);
    const { filename, maxIdleMs, output: format } = flags;
    const settings = runSettingsOf(flags);
    const logger = loggerOf(io, flags);
    const connection = await connect(flags, io.signal);
    try {
      const session = { io, flags, format, connection, logger, settings };
      // A dry run changes nothing, so it runs from here in any case.
      const isFollowing = !flags.standalone && !flags.dryRun && (await isControllerRunning(connection.kube, io.signal));
      const work = isFollowing ? followAll : migrateHere;
      if (!isFollowing && !flags.dryRun) {
        io.onMayFreeze?.();
        const warning = settleWarning(flags);
        if (warning !== undefined) io.stderr.write(`warning: ${warning}\n`);
      }
      if (filename !== undefined) {
        const forced = { ...session, flags: { ...flags, force: true } };
        const one = async (name: string): Promise<ExitCode> => (await work(forced, [name])).get(name) ?? EXIT.failed;
        const assert = async (resource: Pick<Resource, "group" | "plural">, isMigration: boolean): Promise<void> => {
          // The controller has its own rights to migrate.
          const isOwn = isMigration && !isFollowing;
          if (isOwn) await assertMayMigrate(connection.kube, resource, { ...settings, signal: io.signal });
          else await assertRights(connection.kube, resourceName(resource), rightsForDryRun(resource), io.signal);
        };
        return await migrateFiles({ ...session, migrate: one, assertRights: assert }, filename);
      }
      const lookup = { client: connection.kube, forMs: maxIdleMs, format, ignoreNotFound: flags.ignoreNotFound };
      const stale = flags.all ? await staleResources(connection.kube, io, format) : undefined;
      const chosen = stale ?? (await fullNames(io, lookup, given));
      const doubted = stale?.doubted ?? [];
      const others = chosen.names.filter((name) => !doubted.includes(name));
      const forced = { ...session, flags: { ...flags, force: true } };
      const codes = new Map([...(await work(session, others)), ...(await work(forced, doubted))]);
      if (codes.size > 1) {
        const summary = runSummaryOf(codes);
        const text = format === "json" ? eventLine(systemClock.now(), summary) : describeRunSummary(summary);
        io.stdout.write(`${oneLine(text)}\n`);
      }
      return worstOf([chosen.code, ...codes.values()]);
    } finally {
      await connection.close();
    }
  },
});

/** @throws {KsvmError} Usage for flags that do not go together. */
function assertUsable({ all, apply, filename }: MigrateFlags, names: readonly string[]): void {
  if ([all, names.length > 0, filename !== undefined].filter(Boolean).length !== 1) {
    throw new KsvmError(
      "Usage",
      "Cannot tell what to migrate: name resources, or pass either --all or -f without names",
    );
  }
  if (apply && filename === undefined) {
    throw new KsvmError("Usage", "Cannot apply without a file: pass it with -f");
  }
}

/** Migrates resources from this process. @returns the exit code of each */
async function migrateHere(session: MigrateSession, names: readonly string[]): Promise<ReadonlyMap<string, ExitCode>> {
  const { connection, flags, io, settings } = session;
  const reports = new Map(names.map((name) => [name, reportFor(session, name)]));
  const codes = new Map<string, ExitCode>();
  await migrate(connection.kube, names, {
    ...settings,
    dryRun: flags.dryRun,
    force: flags.force,
    identity: `${hostname()}_${randomUUID()}`,
    signal: io.signal,
    onEvent: (event, name) => {
      reports.get(name)?.log.debug({ event }, "Run event");
      reports.get(name)?.reporter.event(event);
    },
    onEnd: (end) => {
      const report = reports.get(end.name);
      const code = report && reportEnd(session, report, end);
      if (code !== undefined) codes.set(end.name, code);
    },
  });
  return codes;
}

/** @returns `undefined` for one that `--all` found and that was deleted before its turn came */
function reportEnd(
  { flags, io }: MigrateSession,
  { log, reporter }: ResourceReport,
  end: MigrationEnd,
): ExitCode | undefined {
  const purpose = flags.dryRun ? "dry-run" : "migrate";
  if ("result" in end) {
    log.debug({ result: end.result }, "Run ended");
    reporter.result(end.result, purpose);
    return end.result.outcome === "incomplete" ? EXIT.incomplete : EXIT.done;
  }
  const { error } = end;
  log.debug({ err: error }, "Run failed");
  if (flags.all && error instanceof KsvmError && error.code === "ResourceNotFound") {
    reporter.note("nothing to do: the cluster has no such resource");
    return undefined;
  }
  if (error instanceof CleanupFailed) reporter.result(error.result, purpose);
  // Whatever a request says that was broken off.
  const isInterrupted = io.signal.aborted && !(error instanceof CleanupFailed);
  reporter.error(isInterrupted ? io.signal.reason : error);
  return io.signal.aborted ? EXIT.interrupted : exitCodeOf(error);
}

/** Has the controller in the cluster migrate resources, one after the other. @returns the exit code of each */
async function followAll(session: MigrateSession, names: readonly string[]): Promise<ReadonlyMap<string, ExitCode>> {
  const { connection, flags, io } = session;
  const codes = new Map<string, ExitCode>();
  for (const name of names) {
    const follow = async ({ log, reporter }: ResourceReport): Promise<ExitCode> => {
      const { force } = flags;
      const result = await followMigration(connection.kube, name, { force, reporter, signal: io.signal });
      log.debug({ result }, "Run ended");
      reporter.result(result);
      return result.outcome === "incomplete" ? EXIT.incomplete : EXIT.done;
    };
    codes.set(name, io.signal.aborted ? EXIT.interrupted : await reportOn(session, name, follow));
  }
  return codes;
}
