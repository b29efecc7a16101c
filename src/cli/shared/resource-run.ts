import { randomUUID } from "node:crypto";
import { hostname } from "node:os";
import type { Logger } from "pino";
import type { SeenServers } from "../../old/apiservers/seen-servers.ts";
import { systemClock } from "../../clock.ts";
import type { Connection } from "../../old/kube/connection.ts";
import { assembleRun, type RunParts, type RunSettings } from "../../old/migrator/assemble-run.ts";
import type { RunContext } from "../../old/migrator/run-context.ts";
import type { RUN_FORMATS } from "../flags/run-flags.ts";
import type { ExitCode } from "../render/exit-codes.ts";
import type { CliIo } from "../render/io.ts";
import { exitCodeOf } from "../render/report-error.ts";
import { createReporter, type Reporter } from "../render/reporter.ts";

/** What all runs of one command share. */
export interface RunSession {
  readonly io: CliIo;
  readonly format: (typeof RUN_FORMATS)[number];
  readonly connection: Connection;
  readonly logger: Logger;
  readonly seen: SeenServers;
}

/** Where the work on one resource is shown and logged. */
export interface ResourceReport {
  readonly reporter: Reporter;
  readonly log: Logger;
}

/** What a command decides about its runs. */
export type ResourceRun = Pick<
  RunParts,
  "cleanupPatience" | "dryRun" | "encryption" | "force" | "onRested" | "purpose"
> & {
  readonly settings: RunSettings;
};

/** Does what a command does with one resource, and reports the error where that fails. */
export async function reportOn(
  { format, io, logger }: RunSession,
  name: string,
  work: (report: ResourceReport) => Promise<ExitCode>,
): Promise<ExitCode> {
  const reporter = createReporter(io, name, { format, clock: systemClock });
  const log = logger.child({ resource: name });
  try {
    return await work({ reporter, log });
  } catch (error) {
    log.debug({ err: error }, "Run failed");
    reporter.error(error);
    return exitCodeOf(error);
  }
}

/**
 * Begins a run, and ends its connections when the work is done.
 * @throws whatever `work` throws.
 */
export async function withRun<T>(
  { connection, io, seen }: RunSession,
  { log, reporter }: ResourceReport,
  { settings, ...parts }: ResourceRun,
  work: (context: RunContext) => Promise<T>,
): Promise<T> {
  const run = assembleRun(
    { ...connection, ...settings, clock: systemClock, seen },
    {
      ...parts,
      identity: `${hostname()}_${randomUUID()}`,
      emit: (event) => {
        log.debug({ event }, "Run event");
        reporter.event(event);
      },
      signal: io.signal,
    },
  );
  try {
    return await work(run.context);
  } finally {
    await run.close();
  }
}
