import { randomUUID } from "node:crypto";
import { hostname } from "node:os";
import type { Logger } from "pino";
import { systemClock } from "../../clock.ts";
import { KsvmError, messageOf } from "../../errors.ts";
import type { ApiClient } from "../../kube/client.ts";
import { ApiServerFinder } from "../../migrator/api-servers.ts";
import type { EventSink } from "../../migrator/events.ts";
import { planAll } from "../../migrator/inventory.ts";
import { migrate } from "../../migrator/migrate.ts";
import { migrateBesideInTree } from "../../migrator/beside-in-tree.ts";
import { Limiter } from "../../migrator/limiter.ts";
import { Pacer } from "../../migrator/pacer.ts";
import type { MigrationResult } from "../../migrator/result.ts";
import { Retrier } from "../../migrator/retrier.ts";
import type { MigrationOptions, RunContext } from "../../migrator/run-context.ts";
import { type Connection, type ConnectOptions, connect } from "../connect.ts";
import { isControllerRunning } from "./find-controller.ts";
import { followMigration } from "./follow-migration.ts";
import { EXIT, type ExitCode, worstOf } from "../exit-codes.ts";
import type { CliIo } from "../io.ts";
import { exitCodeOf } from "../report-error.ts";
import { createReporter, type MIGRATE_FORMATS, type Reporter } from "../render/reporter.ts";

/** The options of `ksvm migrate`. */
export interface MigrateOptions extends ConnectOptions, MigrationOptions {
  readonly output: (typeof MIGRATE_FORMATS)[number];
  readonly allStale: boolean;
  /** Migrates from here even where a controller in the cluster would. */
  readonly standalone: boolean;
  readonly maxInFlight: number;
  readonly maxQps: number;
  readonly maxIdleMs: number;
  readonly webhookWaitMs: number;
  readonly apiserverEndpoints?: readonly string[];
  /** Names of identity Leases whose API servers are gone. */
  readonly ignoreApiserver?: readonly string[];
  /** `strict` refuses to sample API servers that cannot be asked one by one. */
  readonly convergence: (typeof CONVERGENCE_CHOICES)[number];
}

/** Nobody but this process lifts its freeze: it goes on trying while the API server is down, an hour at most. */
const CLEANUP_PATIENCE_MS = 3_600_000;

/** The values of `--convergence`. */
export const CONVERGENCE_CHOICES = ["auto", "strict"] as const;

interface MigrateSession {
  readonly io: CliIo;
  readonly options: MigrateOptions;
  readonly connection: Connection;
  readonly logger: Logger;
  /** Whether a controller in the cluster migrates; this program follows it then. */
  readonly follows: boolean;
}

/**
 * `ksvm migrate`: migrates the named resources one after the other. One that fails keeps no other from its turn.
 * @throws {KsvmError} where nothing could be begun.
 */
export async function migrateCommand(
  io: CliIo,
  names: readonly string[],
  options: MigrateOptions,
  logger: Logger,
): Promise<ExitCode> {
  if (options.allStale === names.length > 0) {
    throw new KsvmError("Usage", "Cannot tell what to migrate: name resources, or pass --all-stale without names");
  }
  const connection = await connect(options, io.signal);
  try {
    // A dry-run changes nothing, so it needs nobody's leave.
    const isLocal = options.standalone || options.dryRun;
    const retrier = retrierFor(options, (event) => logger.debug({ event }, "looking for a controller"));
    const look = { client: connection.client, clock: systemClock, retrier };
    const follows = !isLocal && (await isControllerRunning(look, io.signal));
    if (!follows && !options.dryRun) {
      io.onMayFreeze?.();
    }
    const session = { io, options, connection, logger, follows };
    const codes: ExitCode[] = [];
    for (const name of options.allStale ? await staleResources(connection.client, io) : [...new Set(names)]) {
      codes.push(io.signal.aborted ? EXIT.interrupted : await migrateOne(session, name));
    }
    return worstOf(codes);
  } finally {
    await connection.close();
  }
}

async function staleResources(client: ApiClient, { stdout, stderr, signal }: CliIo): Promise<readonly string[]> {
  const warn = (groupVersion: string, reason: string): void => {
    stderr.write(`warning: ${groupVersion} is left out: its API server says: ${reason}\n`);
  };
  const { entries, hasStorageStates } = await planAll(client, warn, { signal });
  const unknown = entries.filter(({ action }) => action === "unknown").map(({ name }) => name);
  const stale = entries.filter(({ action }) => action !== "none" && action !== "unknown").map(({ name }) => name);
  if (unknown.length > 0) {
    stderr.write(`note: ${leftOutText(unknown, hasStorageStates)}\n`);
  }
  if (stale.length === 0) {
    stdout.write("nothing to do: storedVersions of every CRD is its storage version\n");
  }
  return stale;
}

function leftOutText(unknown: readonly string[], hasStorageStates: boolean): string {
  return hasStorageStates
    ? `${unknown.length} built-in resources are left out, of which the StorageStates do not say how they are stored: ` +
        `${unknown.join(", ")}; why: ksvm plan -o wide`
    : "built-in resources are left out: without StorageStates it cannot be known which of them are stale";
}

async function migrateOne(session: MigrateSession, name: string): Promise<ExitCode> {
  const { io, options, logger } = session;
  const reporter = createReporter(io, name, { format: options.output, clock: systemClock });
  const log = logger.child({ resource: name });
  try {
    const result = await (session.follows
      ? followOne(session, reporter, name)
      : runOne(session, { reporter, log, name }));
    log.debug({ result }, "run ended");
    reporter.result(result);
    return result.outcome === "incomplete" ? EXIT.incomplete : EXIT.done;
  } catch (error) {
    log.debug({ err: error }, "run failed");
    reporter.error(error);
    return exitCodeOf(error);
  }
}

function followOne(
  { connection, io, options }: MigrateSession,
  reporter: Reporter,
  name: string,
): Promise<MigrationResult> {
  const { client } = connection;
  return followMigration({ client, clock: systemClock, reporter, force: options.force, signal: io.signal }, name);
}

async function runOne(
  session: MigrateSession,
  { reporter, log, name }: { readonly reporter: Reporter; readonly log: Logger; readonly name: string },
): Promise<MigrationResult> {
  const { options } = session;
  const emit: EventSink = (event) => {
    log.debug({ event }, "run event");
    reporter.event(event);
  };
  const retrier = retrierFor(options, emit);
  const finder = new ApiServerFinder({
    ...session.connection,
    clock: systemClock,
    retrier,
    endpoints: options.apiserverEndpoints,
    ignored: options.ignoreApiserver,
    strict: options.convergence === "strict",
    timeoutMs: options.convergenceTimeoutMs,
    onLag: (server, reason) => emit({ type: "lagging", server, reason }),
  });
  try {
    const context = contextFor(session, { finder, retrier, emit });
    // A dry-run changes nothing, so it stands in nobody's way.
    return await (options.dryRun ? migrate(context, name) : migrateBesideInTree(context, name, options.webhookWaitMs));
  } finally {
    await finder.close();
  }
}

function contextFor(
  { connection, io, options }: MigrateSession,
  { finder, retrier, emit }: { finder: ApiServerFinder; retrier: Retrier; emit: EventSink },
): RunContext {
  const { maxInFlight, maxQps } = options;
  return {
    client: connection.client,
    findApiServers: (signal) => finder.findAll(options.settleMs, signal),
    clock: systemClock,
    retrier,
    pacer: new Pacer({ clock: systemClock, maxInFlight, maxQps, limiter: new Limiter({ maxInFlight }) }),
    identity: `${hostname()}_${randomUUID()}`,
    purpose: "ksvm migrate",
    options,
    emit,
    cleanupPatience: { ms: CLEANUP_PATIENCE_MS, interrupted: io.signal },
    signal: io.signal,
  };
}

function retrierFor({ maxIdleMs, webhookWaitMs }: MigrateOptions, emit: EventSink): Retrier {
  return new Retrier({
    clock: systemClock,
    random: Math.random,
    maxIdleMs,
    webhookWaitMs,
    onRetry: (error, delayMs) => emit({ type: "retrying", reason: messageOf(error), delayMs }),
  });
}
