import { type ErrorCode, KsvmError, messageOf } from "../../errors.ts";
import { oneLine } from "./printable.ts";
import { EXIT, type ExitCode } from "./exit-codes.ts";

/** The code of anything that was thrown: an error without a code is a fault of this program. */
export function codeOf(thrown: unknown): ErrorCode {
  return thrown instanceof KsvmError ? thrown.code : "Internal";
}

/** The exit code that an error leads to. */
export function exitCodeOf(thrown: unknown): ExitCode {
  switch (codeOf(thrown)) {
    case "Interrupted":
      return EXIT.interrupted;
    case "Usage":
      return EXIT.usage;
    default:
      return EXIT.failed;
  }
}

/** One line for a user: what was wrong and under which code docs/errors.md explains it. Never a stack. */
export function errorLine(thrown: unknown): string {
  return `error: ${oneLine(messageOf(thrown))} [${codeOf(thrown)}]`;
}
