#!/usr/bin/env node
import "./small-heap.ts";
import { EXIT } from "./exit-codes.ts";
import { Interruption } from "./interruption.ts";

const { runProgram } = await import("./program.ts");

const interruption = new AbortController();

/** The first signal ends the run cleanly; a second one does not wait for that. */
function onSignal(signal: NodeJS.Signals): void {
  if (interruption.signal.aborted) {
    process.exit(EXIT.interrupted);
  }
  interruption.abort(new Interruption(signal));
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
