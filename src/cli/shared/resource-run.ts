import type { Logger } from "pino";
import { systemClock } from "../../clock.ts";
import type { RunFormat } from "../flags/run-flags.ts";
import type { ExitCode } from "../render/exit-codes.ts";
import type { CliIo } from "../render/io.ts";
import { exitCodeOf } from "../render/report-error.ts";
import { createReporter, type Reporter } from "../render/reporter.ts";
import type { Connection } from "./connect.ts";

/** What all runs of one command share. */
export interface RunSession {
  readonly io: CliIo;
  readonly format: RunFormat;
  readonly connection: Connection;
  readonly logger: Logger;
}

/** Where the work on one resource is shown and logged. */
export interface ResourceReport {
  readonly reporter: Reporter;
  readonly log: Logger;
}

/** Where the work on one resource is to be shown and logged. */
export function reportFor(
  { format, io, logger }: Pick<RunSession, "format" | "io" | "logger">,
  name: string,
): ResourceReport {
  return {
    reporter: createReporter(io, name, { format, clock: systemClock }),
    log: logger.child({ resource: name }),
  };
}

/** Does what a command does with one resource, and reports the error where that fails. */
export async function reportOn(
  session: Pick<RunSession, "format" | "io" | "logger">,
  name: string,
  work: (report: ResourceReport) => Promise<ExitCode>,
): Promise<ExitCode> {
  const report = reportFor(session, name);
  try {
    return await work(report);
  } catch (error) {
    report.log.debug({ err: error }, "Run failed");
    report.reporter.error(error);
    return exitCodeOf(error);
  }
}
