#!/usr/bin/env node
import { KsvmError } from "../errors.ts";
import { EXIT } from "./exit-codes.ts";
import { runProgram } from "./program.ts";

const interruption = new AbortController();

/** The first signal ends the run cleanly; a second one does not wait for that. */
function onSignal(signal: NodeJS.Signals): void {
  if (interruption.signal.aborted) {
    process.exit(EXIT.interrupted);
  }
  process.stderr.write(
    `received ${signal}, ending cleanly; once more to end at once, which may leave a freeze behind\n`,
  );
  interruption.abort(new KsvmError("Interrupted", "Interrupted: nothing was pruned, run again to resume"));
}

process.on("SIGINT", onSignal);
process.on("SIGTERM", onSignal);

// A reader that went away (`ksvm plan | head`) is no reason to leave a CRD frozen.
process.stdout.on("error", () => undefined);

process.exitCode = await runProgram(process.argv.slice(2), {
  stdout: process.stdout,
  stderr: process.stderr,
  stdin: process.stdin,
  signal: interruption.signal,
});
process.removeListener("SIGINT", onSignal);
process.removeListener("SIGTERM", onSignal);
