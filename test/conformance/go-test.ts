import { spawn } from "node:child_process";
import { closeSync, mkdirSync, mkdtempSync, openSync, rmSync, writeSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { Readable } from "node:stream";
import { startWatchdog } from "../processes/watchdog.ts";
import { WORK_DIR } from "./go-workspace.ts";
import { type GoTestEvent, goTestEvent, resultsOf, type TestResult } from "./test-result.ts";

/** How a Go program with tests is run. */
export interface GoTestOptions {
  /** Names the log, in .cache/conformance/logs. */
  readonly name: string;
  readonly command: readonly [string, ...string[]];
  readonly cwd: string;
  readonly env?: NodeJS.ProcessEnv;
  /** The tests that have to report: one that does not has failed. */
  readonly expected: readonly string[];
  readonly signal: AbortSignal;
  /** Ends it after this time. In milliseconds. */
  readonly deadlineMs: number;
}

export const LOG_DIR = join(WORK_DIR, "logs");

/** Between SIGINT, at which a Go test ends what it started, and SIGKILL. */
const END_MS = 20_000;

/** Runs tests of Go that write events (`go test -json`). They and all that they start have ended when this returns. */
export async function runGoTests(options: GoTestOptions): Promise<readonly TestResult[]> {
  const { name, command, cwd, env, expected, signal, deadlineMs } = options;
  mkdirSync(LOG_DIR, { recursive: true });
  const log = openSync(join(LOG_DIR, `${name}.log`), "w");
  // A short path: etcd listens on a socket in it, whose path the kernel limits.
  const tmp = mkdtempSync(join(tmpdir(), "ksvm-go-"));
  const [program, ...args] = command;
  const child = spawn(program, args, {
    cwd,
    env: { ...process.env, ...env, TMPDIR: tmp },
    detached: true,
    stdio: ["ignore", "pipe", log],
  });
  // Where this process is killed, all of it ends too.
  const watchdog = startWatchdog(tmp);
  watchdog.watch(child.pid === undefined ? [] : [-child.pid]);
  const end = AbortSignal.any([signal, AbortSignal.timeout(deadlineMs)]);
  const onEnd = (): void => {
    endGroup(child.pid, "SIGINT");
    setTimeout(() => endGroup(child.pid, "SIGKILL"), END_MS).unref();
  };
  end.addEventListener("abort", onEnd);
  try {
    const events: GoTestEvent[] = [];
    const ended = new Promise((resolve, reject) => child.on("error", reject).on("close", resolve));
    for await (const line of createInterface({ input: child.stdout ?? Readable.from([]) })) {
      const event = goTestEvent(line);
      writeSync(log, event === undefined ? `${line}\n` : (event.Output ?? ""));
      if (event !== undefined) events.push(event);
    }
    await ended;
    signal.throwIfAborted();
    return resultsOf(expected, events);
  } finally {
    end.removeEventListener("abort", onEnd);
    endGroup(child.pid, "SIGKILL");
    watchdog.disarm();
    rmSync(tmp, { recursive: true, force: true });
    closeSync(log);
  }
}

function endGroup(pid: number | undefined, signal: NodeJS.Signals): void {
  try {
    if (pid !== undefined) process.kill(-pid, signal);
  } catch {
    // All of it has ended.
  }
}
