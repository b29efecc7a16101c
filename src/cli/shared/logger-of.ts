import type { Logger } from "pino";
import { createLogger } from "../../observability/logger.ts";
import type { LogFlags } from "../flags/global-flags.ts";
import type { CliIo } from "../render/io.ts";

/** The logger that the flags of every command describe. */
export function loggerOf({ stderr }: CliIo, { logLevel: level, logFormat: format }: LogFlags): Logger {
  return createLogger({ level, format, destination: stderr });
}
