import { type DestinationStream, type Logger, pino } from "pino";
import { PinoPretty } from "pino-pretty";

/** The values of `--log-level`. */
export const LOG_LEVELS = ["trace", "debug", "info", "warn", "error", "silent"] as const;
/** The values of `--log-format`. */
export const LOG_FORMATS = ["text", "json"] as const;

/** What a logger writes, and how. */
export interface LoggerOptions {
  readonly level: (typeof LOG_LEVELS)[number];
  readonly format: (typeof LOG_FORMATS)[number];
  readonly destination: DestinationStream & NodeJS.WritableStream;
}

/** Fields that may carry credentials, wherever a log line nests them. */
const SECRETS = [
  "token",
  "authorization",
  "key",
  "keyPem",
  "password",
  "*.token",
  "*.authorization",
  "*.key",
  "*.keyPem",
];

/** A logger with constant messages, fields beside them, and secrets blotted out. */
export function createLogger({ level, format, destination }: LoggerOptions): Logger {
  const options = { level, base: null, redact: SECRETS };
  const stream = format === "json" ? destination : PinoPretty({ colorize: false, destination, sync: true });
  return pino(options, stream);
}
