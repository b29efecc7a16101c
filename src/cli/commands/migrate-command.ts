import { eventLine } from "../render/document.ts";
import { systemClock } from "../../clock.ts";
import { KsvmError } from "../../errors.ts";
import { ApiError } from "../../old/kube/errors.ts";
import { SeenServers } from "../../old/apiservers/seen-servers.ts";
import { migrate } from "../../old/migrator/migrate.ts";
import { migrateBesideInTree } from "../../old/migrator/beside-in-tree.ts";
import type { MigrationResult } from "../../old/migrator/result.ts";
import { ONE_SHOT_CLEANUP_MS } from "../../old/retry/cleanup.ts";
import { Retrier } from "../../old/retry/retrier.ts";
import { defineCommand } from "../shared/command.ts";
import { connect } from "../shared/connect.ts";
import { fullNames, type NameLookup } from "../shared/full-names.ts";
import { isControllerRunning } from "./find-controller.ts";
import { staleResources } from "./stale-resources.ts";
import { migrateFiles } from "./migrate-files.ts";
import { followMigration } from "./follow-migration.ts";
import { describeRunSummary, runSummaryOf } from "../render/run-summary.ts";
import { EXIT, type ExitCode, worstOf } from "../render/exit-codes.ts";
import type { FlagsOf, FlagTable } from "../flags/flag.ts";
import { repeated, toggle } from "../flags/kinds.ts";
import { MIGRATION_FLAGS } from "../flags/migration-flags.ts";
import { LEASE_NAMESPACE_FLAG, MANAGED_FIELDS_FLAG, RUN_OUTPUT_FLAG, VIA_FLAG } from "../flags/run-flags.ts";
import { runSettingsOf } from "../flags/run-settings.ts";
import { anyNames } from "../flags/operands.ts";
import { anyText } from "../flags/parsers.ts";
import type { CliIo } from "../render/io.ts";
import { loggerOf } from "../shared/logger-of.ts";
import { type ResourceReport, type RunSession, reportOn, withRun } from "../shared/resource-run.ts";
import type { Reporter } from "../render/reporter.ts";
import { oneLine } from "../render/printable.ts";

const MIGRATE_FLAGS = {
  filename: repeated(anyText, {
    short: "f",
    placeholder: "path",
    help: "file or directory with CRDs, - for stdin: take each CRD to the point where its file can be applied; can be repeated",
  }),
  apply: toggle({ help: "with -f: write the file itself, too" }),
  "all-stale": toggle({
    help:
      "migrate every CRD whose storedVersions is not exactly its storage version, or may have been pruned without a success, and " +
      "every built-in resource whose StorageState shows that objects may be stored in another version",
  }),
  "dry-run": toggle({ help: "send every write as a server-side dry run; change nothing" }),
  standalone: toggle({ help: "migrate from this process even if a controller runs in the cluster" }),
  force: toggle({ help: "rewrite the objects of a CRD that is already clean" }),
  ...VIA_FLAG,
  "ignore-not-found": toggle({
    help: "a named resource that the cluster does not have is no error, as before the first install",
  }),
  ...MANAGED_FIELDS_FLAG,
  ...RUN_OUTPUT_FLAG,
  ...MIGRATION_FLAGS,
  ...LEASE_NAMESPACE_FLAG,
} satisfies FlagTable;

type MigrateFlags = FlagsOf<typeof MIGRATE_FLAGS>;

interface MigrateSession extends RunSession {
  readonly flags: MigrateFlags;
  /** Whether a controller in the cluster migrates; this program follows it then. */
  readonly follows: boolean;
}

/** `ksvm migrate`: migrates the named resources one after the other. If one fails, the next ones are still migrated. */
export const MIGRATE_COMMAND = defineCommand({
  path: "migrate",
  description: "Freeze the storage version, rewrite every object, prune storedVersions, unfreeze.",
  examples: [
    "ksvm migrate widgets.example.com",
    "ksvm migrate --all-stale",
    "ksvm migrate widgets.example.com --dry-run",
    "ksvm migrate -f crds/ --apply",
  ],
  operands: anyNames("plural.group of a CRD or a built-in resource"),
  flags: MIGRATE_FLAGS,
  async run(io, flags, names) {
    assertUsable(flags, names);
    const logger = loggerOf(io, flags);
    const seen = new SeenServers(systemClock);
    const connection = await connect(flags, io.signal, seen.observer);
    try {
      const follows = await isFollowing(io, { flags, connection, logger });
      if (!follows && !flags.dryRun) {
        io.onMayFreeze?.();
      }
      const session = { io, flags, format: flags.output, connection, logger, follows, seen };
      if (flags.filename !== undefined) {
        const forced = { ...session, flags: { ...flags, force: true } };
        return await migrateFiles({ ...session, migrate: (name) => migrateOne(forced, name) }, flags.filename);
      }
      const chosen = flags.allStale
        ? await staleResources(connection.client, io, flags.output)
        : await fullNames(
            io,
            { ...lookupOf(session), format: flags.output, ignoreNotFound: flags.ignoreNotFound },
            names,
          );
      const codes = new Map<string, ExitCode>();
      await seen.arrivals.throughout(async () => {
        for (const name of chosen.names) {
          const code = io.signal.aborted ? EXIT.interrupted : await migrateInTurn(session, name);
          if (code !== undefined) {
            codes.set(name, code);
          }
        }
      });
      summarize(session, codes);
      return worstOf([chosen.code, ...codes.values()]);
    } finally {
      await connection.close();
    }
  },
});

/** @throws {KsvmError} Usage for flags that do not go together. */
function assertUsable(flags: MigrateFlags, names: readonly string[]): void {
  const { allStale, apply, filename, managedFields, via } = flags;
  if ([allStale, names.length > 0, filename !== undefined].filter(Boolean).length !== 1) {
    throw new KsvmError(
      "Usage",
      "Cannot tell what to migrate: name resources, or pass either --all-stale or -f without names",
    );
  }
  if (apply && filename === undefined) {
    throw new KsvmError("Usage", "Cannot apply without a file: pass it with -f");
  }
  if (via === "status" && managedFields === "convert") {
    throw new KsvmError(
      "Usage",
      "Cannot convert managedFields through the status: leave out --via or --managed-fields",
    );
  }
}

function lookupOf({ connection: { client }, flags, logger }: MigrateSession): Omit<NameLookup, "signal"> {
  const { maxIdleMs, webhookWaitMs } = flags;
  const onRetry = (err: unknown): void => logger.debug({ err }, "Looking for a resource");
  const retrier = new Retrier({ clock: systemClock, random: Math.random, maxIdleMs, webhookWaitMs, onRetry });
  return { client, retrier };
}

function specialFlagOf({ managedFields, via }: MigrateFlags): string | undefined {
  const fields = managedFields === "auto" ? undefined : `--managed-fields=${managedFields}`;
  return via === "status" ? "--via=status" : fields;
}

function wayOf({ leaseNamespace, managedFields, via }: MigrateFlags) {
  return { leaseNamespace, managedFields, via };
}

/** One line about several resources; one resource has its result. */
function summarize({ format, io }: MigrateSession, codes: ReadonlyMap<string, ExitCode>): void {
  if (codes.size > 1) {
    const summary = runSummaryOf(codes);
    const text = format === "json" ? eventLine(systemClock.now(), summary) : describeRunSummary(summary);
    io.stdout.write(`${oneLine(text)}\n`);
  }
}

/**
 * Whether a controller in the cluster migrates. A dry run changes nothing, so it runs from here in any case.
 * @throws {KsvmError} Usage where one does, and this user wants what only a person should ask for, who looks at the result.
 */
async function isFollowing(
  { signal }: CliIo,
  { flags, connection, logger }: Pick<MigrateSession, "flags" | "connection" | "logger">,
): Promise<boolean> {
  if (flags.standalone || flags.dryRun) {
    return false;
  }
  const { maxIdleMs, webhookWaitMs } = flags;
  const onRetry = (err: unknown): void => logger.debug({ err }, "Looking for a controller");
  const retrier = new Retrier({ clock: systemClock, random: Math.random, maxIdleMs, webhookWaitMs, onRetry });
  const looking = isControllerRunning({ client: connection.client, clock: systemClock, retrier }, signal);
  const isRunning = await looking.catch(unseenController);
  const special = specialFlagOf(flags);
  if (isRunning && special !== undefined) {
    throw new KsvmError(
      "Usage",
      `Cannot have the controller in the cluster migrate with ${special}: only this process does that; pass --standalone`,
    );
  }
  return isRunning;
}

/** A user who may not read the Lease of the controller works as where there is none. @throws any other error */
function unseenController(error: unknown): false {
  if (error instanceof ApiError && error.status === 403) {
    return false;
  }
  throw error;
}

/** `undefined` for one that `--all-stale` found and that was deleted before its turn came. */
async function migrateInTurn(session: MigrateSession, name: string): Promise<ExitCode | undefined> {
  const { flags, format, io } = session;
  if (!flags.allStale) {
    return migrateOne(session, name);
  }
  const found = await fullNames(io, { ...lookupOf(session), format, ignoreNotFound: true }, [name]);
  if (found.names.length > 0) {
    return migrateOne(session, name);
  }
  return found.code === EXIT.done ? undefined : found.code;
}

function migrateOne(session: MigrateSession, name: string): Promise<ExitCode> {
  return reportOn(session, name, async (report) => {
    const { log, reporter } = report;
    const result = await (session.follows ? followOne(session, reporter, name) : runOne(session, report, name));
    log.debug({ result }, "Run ended");
    reporter.result(result);
    return result.outcome === "incomplete" ? EXIT.incomplete : EXIT.done;
  });
}

function followOne(
  { connection, io, flags }: MigrateSession,
  reporter: Reporter,
  name: string,
): Promise<MigrationResult> {
  const { client } = connection;
  return followMigration({ client, clock: systemClock, reporter, force: flags.force, signal: io.signal }, name);
}

function runOne(session: MigrateSession, report: ResourceReport, name: string): Promise<MigrationResult> {
  const { flags, io } = session;
  const { dryRun, force, managedFields, via, webhookWaitMs } = flags;
  const run = {
    settings: runSettingsOf(flags, { ...wayOf(flags), crdMode: "manage" }),
    dryRun,
    force,
    // A run that leaves managedFields as they are leaves nothing that one which converts them could go on from.
    purpose: managedFields === "keep" || via === "status" ? "ksvm migrate, managedFields kept" : "ksvm migrate",
    cleanupPatience: { ms: ONE_SHOT_CLEANUP_MS, interrupted: io.signal },
  };
  // A dry run changes nothing, so it does not have to wait for Kubernetes' own migrator.
  return withRun(session, report, run, (context) =>
    dryRun ? migrate(context, name) : migrateBesideInTree(context, name, webhookWaitMs),
  );
}
