/** The program, on a Node.js that can run it: see main.ts. */
import "./small-heap.ts";
import { systemClock } from "../clock.ts";
import { EXIT } from "./render/exit-codes.ts";
import { errorLine } from "./render/report-error.ts";
import { Signals } from "./shared/signals.ts";
import { StandardStreams } from "./shared/standard-streams.ts";

const { programNameOf, runProgram } = await import("./program.ts");

const signals = new Signals(systemClock);

function onSignal(signal: NodeJS.Signals): void {
  if (signals.receive(signal)) {
    process.exit(EXIT.interrupted);
  }
}

const SIGNALS = ["SIGINT", "SIGTERM", "SIGHUP"] as const;
for (const signal of SIGNALS) {
  process.on(signal, onSignal);
}

const streams = new StandardStreams(process.stdout, process.stderr);
const io = { stdout: process.stdout, stderr: process.stderr, stdin: process.stdin, signal: signals.interruption };
const exitCode = await runProgram(process.argv.slice(2), io, programNameOf(process.argv[1] ?? ""));
const failure = await streams.failure();
if (failure !== undefined) {
  process.stderr.write(`${errorLine(failure)}\n`);
}
process.exitCode = failure !== undefined && exitCode === EXIT.done ? EXIT.failed : exitCode;
// What hangs, such as an exec plugin, does not keep a program that was interrupted.
if (signals.interruption.aborted) process.exit();
for (const signal of SIGNALS) {
  process.removeListener(signal, onSignal);
}
