/** The program, on a Node.js that can run it: see main.ts. */
import "./small-heap.ts";
import { EXIT } from "./render/exit-codes.ts";
import { Interruption } from "./shared/interruption.ts";
import { errorLine } from "./render/report-error.ts";
import { StandardStreams } from "./shared/standard-streams.ts";

const { programNameOf, runProgram } = await import("./program.ts");

const interruption = new AbortController();

/** The first signal ends the run cleanly; a second one does not wait for that, unless it is a SIGHUP. */
function onSignal(signal: NodeJS.Signals): void {
  if (interruption.signal.aborted && signal !== "SIGHUP") {
    process.exit(EXIT.interrupted);
  }
  interruption.abort(new Interruption(signal));
}

/** SIGHUP is what a terminal that is closed, or an ssh session that breaks, sends: often twice, once by the kernel and once by the shell. */
const SIGNALS = ["SIGINT", "SIGTERM", "SIGHUP"] as const;
for (const signal of SIGNALS) {
  process.on(signal, onSignal);
}

const streams = new StandardStreams(process.stdout, process.stderr);
const io = { stdout: process.stdout, stderr: process.stderr, stdin: process.stdin, signal: interruption.signal };
const exitCode = await runProgram(process.argv.slice(2), io, programNameOf(process.argv[1] ?? ""));
const failure = await streams.failure();
if (failure !== undefined) {
  process.stderr.write(`${errorLine(failure)}\n`);
}
process.exitCode = failure !== undefined && exitCode === EXIT.done ? EXIT.failed : exitCode;
for (const signal of SIGNALS) {
  process.removeListener(signal, onSignal);
}
