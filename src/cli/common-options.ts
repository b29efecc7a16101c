import { type Command, Option } from "commander";
import { LOG_FORMATS, LOG_LEVELS, type LoggerOptions } from "../observability/logger.ts";
import type { ExitCode } from "./exit-codes.ts";
import type { CliIo } from "./io.ts";
import { parseDuration } from "./parse-options.ts";

/** What every command is added with. */
export interface CommandParts {
  readonly io: CliIo;
  readonly onExit: (code: ExitCode) => void;
}

/** The values of `--log-level` and `--log-format`. */
export interface LogOptions {
  readonly logLevel: LoggerOptions["level"];
  readonly logFormat: LoggerOptions["format"];
}

/** An option that takes a duration such as `90s`; its value is in milliseconds. */
export function durationOption(flags: string, description: string, defaultMs: number): Option {
  return new Option(flags, description).argParser(parseDuration).default(defaultMs, `${defaultMs / 1_000}s`);
}

/** The options that every command takes. */
export function withGlobalOptions(command: Command): Command {
  return command
    .option("--kubeconfig <path>", "kubeconfig to use; else KUBECONFIG, ~/.kube/config or the service account")
    .option("--context <name>", "context of the kubeconfig to use")
    .addOption(new Option("--log-level <level>", "what to log to stderr").choices(LOG_LEVELS).default("warn"))
    .addOption(new Option("--log-format <format>", "how to log").choices(LOG_FORMATS).default("text"));
}
