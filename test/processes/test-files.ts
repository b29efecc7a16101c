import { type ChildProcess, spawn } from "node:child_process";
import { readFileSync } from "node:fs";
import { setPriority } from "node:os";
import { Parser, type Result } from "tap-parser";
import { stringify } from "yaml";
import { SHARED_REQUEST, type SharedAnswer, type SharedControlPlanes } from "../control-plane/shared.ts";
import { startWatchdog } from "./watchdog.ts";

/** Named tests: those directly in a file. What they nest is part of them. */
export interface Counts {
  readonly passed: number;
  readonly failed: number;
  readonly skipped: number;
}

/** What one file took. */
export interface FileResult extends Counts {
  readonly file: string;
  readonly isPassed: boolean;
  readonly seconds: number;
  /** Of the file and all that it started, but for shared control planes. */
  readonly cpuSeconds: number;
}

/** How files are run. */
export interface RunOptions {
  /** How many files run side by side. */
  readonly jobs: number;
  /** A file fails after so many seconds, unless it sets a timeout of its own. */
  readonly timeoutSeconds: number;
  /** How nice their processes are. @default 0 */
  readonly niceness?: number;
}

/** A file ends itself after its timeout. One that is in an endless loop cannot: it is killed after this many times as long. */
const PATIENCE = 2;

const WITHOUT_ASYNC_HOOKS = new URL("without-async-hooks.ts", import.meta.url).href;

/**
 * Runs test files, each in a process of its own, and counts their tests. The runner of tap would do the same. It has each process, and each
 * Node that a test starts, load modules that measure coverage: that takes more than half of the time of a small test.
 */
export class TestFiles {
  readonly #cwd: string;
  readonly #env: NodeJS.ProcessEnv;
  readonly #shared: SharedControlPlanes;
  readonly #children = new Set<ChildProcess>();
  readonly #failures: string[] = [];
  readonly #watchdog = startWatchdog();
  #isInterrupted = false;

  constructor(cwd: string, env: NodeJS.ProcessEnv, shared: SharedControlPlanes) {
    this.#cwd = cwd;
    this.#env = env;
    this.#shared = shared;
  }

  get isInterrupted(): boolean {
    return this.#isInterrupted;
  }

  /** What failed up to now, as "FILE > TEST": the output of a long run is easier to read from its end. */
  get failures(): readonly string[] {
    return this.#failures;
  }

  /** Sends a signal to all that runs, and starts nothing more. @returns whether something runs */
  interrupt(signal: NodeJS.Signals): boolean {
    this.#isInterrupted = true;
    for (const child of this.#children) signalGroup(child, signal);
    return this.#children.size > 0;
  }

  /** Runs the files in their order. A file that was not run any more counts as one failed test. */
  async run(files: readonly string[], options: RunOptions): Promise<readonly FileResult[]> {
    const waiting = [...files];
    const all: FileResult[] = [];
    const lane = async (): Promise<void> => {
      for (let next = waiting.shift(); next !== undefined; next = waiting.shift()) {
        all.push(this.#isInterrupted ? this.#notRun(next) : await this.#runFile(next, options));
      }
    };
    await Promise.all(Array.from({ length: options.jobs }, lane));
    return all;
  }

  /** Ends what watches over the processes. */
  end(): void {
    this.#watchdog.disarm();
  }

  async #runFile(file: string, { timeoutSeconds, niceness = 0 }: RunOptions): Promise<FileResult> {
    const startedAt = performance.now();
    const env = { ...this.#env, TAP: "1", TAP_TIMEOUT: String(timeoutSeconds) };
    // In a process group of its own, so that what it started ends with it where it has to be killed.
    const child = spawn(process.execPath, ["--import", WITHOUT_ASYNC_HOOKS, file], {
      cwd: this.#cwd,
      env,
      detached: true,
      stdio: ["ignore", "pipe", "inherit", "ipc"],
    });
    if (child.pid !== undefined && niceness !== 0) setPriority(child.pid, niceness);
    this.#children.add(child);
    this.#watch();
    const releases = this.#lendControlPlanes(child);
    const record = new FileRecord();
    child.stdout?.pipe(record.parser);
    const timer = setTimeout(() => signalGroup(child, "SIGKILL"), timeoutSeconds * PATIENCE * 1_000);
    let cpuSeconds = 0;
    child.on("exit", () => (cpuSeconds = cpuOfEndedChildren()));
    const how = await new Promise<string>((done) => {
      child.on("error", (error) => done(error.message));
      child.on("close", (code, signal) => done(signal ?? `code ${code}`));
    });
    clearTimeout(timer);
    // What it started and left behind must not write to the control plane of the next file.
    signalGroup(child, "SIGKILL");
    for (const release of releases) release();
    this.#children.delete(child);
    this.#watch();
    const seconds = (performance.now() - startedAt) / 1_000;
    const counts = record.end(file, how, { seconds, cpuSeconds });
    this.#failures.push(...record.failures.map((name) => `${file} > ${name}`));
    return { file, seconds, cpuSeconds, ...counts };
  }

  /** Gives a file the control planes that it asks for, until the functions that this returns are called. */
  #lendControlPlanes(child: ChildProcess): (() => void)[] {
    const releases: (() => void)[] = [];
    const lend = async (): Promise<SharedAnswer> => {
      try {
        const { attachment, release } = await this.#shared.take();
        // A file that has ended meanwhile gives it back at once.
        if (child.exitCode === null && child.signalCode === null) releases.push(release);
        else release();
        return { attachment };
      } catch (error) {
        return { error: error instanceof Error ? error.message : String(error) };
      }
    };
    child.on("message", (message) => {
      // tap sends messages of its own.
      if (message !== SHARED_REQUEST) return;
      void lend().then((answer) => child.connected && child.send(answer));
    });
    return releases;
  }

  #watch(): void {
    this.#watchdog.watch([...this.#children].map(({ pid }) => -(pid ?? 0)).filter((pid) => pid < 0));
  }

  #notRun(file: string): FileResult {
    console.log(`FAIL ${file}: no result`);
    this.#failures.push(`${file} > no result`);
    return { file, isPassed: false, seconds: 0, cpuSeconds: 0, passed: 0, failed: 1, skipped: 0 };
  }
}

function signalGroup({ pid }: ChildProcess, signal: NodeJS.Signals): void {
  try {
    if (pid !== undefined) process.kill(-pid, signal);
  } catch {
    // It has gone in this moment.
  }
}

let reported = 0;

/** The CPU seconds of the children that ended since the last call, and of theirs: cutime and cstime of proc(5), in ticks of 10 ms. */
function cpuOfEndedChildren(): number {
  if (process.platform !== "linux") return 0;
  const fields = readFileSync("/proc/self/stat", "utf8").split(") ")[1]?.split(" ") ?? [];
  const total = (Number(fields[13]) + Number(fields[14])) / 100;
  const since = total - reported;
  reported = total;
  return since;
}

/** The tests of one file, as its TAP stream tells them. */
class FileRecord {
  readonly parser = new Parser();
  readonly failures: string[] = [];
  readonly #counts = { passed: 0, failed: 0, skipped: 0 };
  readonly #skipped: string[] = [];
  #isOk = false;

  constructor() {
    this.parser.on("assert", ({ ok, skip, todo, name }: Result) => {
      const outcome = skip !== false || todo !== false ? "skipped" : ok ? "passed" : "failed";
      this.#counts[outcome]++;
      if (outcome === "failed") this.failures.push(name);
      if (outcome === "skipped") this.#skipped.push(`${name}: ${String(skip || todo)}`);
    });
    this.parser.on("complete", ({ ok }) => (this.#isOk = ok));
    showFailures(this.parser);
  }

  /**
   * A file that broke down outside of its tests (a crash, a failed import), or has none, counts as a failed test.
   * @param how its process ended: "code 0", or a signal
   */
  end(
    file: string,
    how: string,
    took: Pick<FileResult, "seconds" | "cpuSeconds">,
  ): Counts & { readonly isPassed: boolean } {
    const { passed, failed, skipped } = this.#counts;
    const tests = passed + failed + skipped;
    const isPassed = this.#isOk && how === "code 0" && tests > 0;
    const isBroken = !isPassed && failed === 0;
    if (isBroken) {
      const what = tests === 0 ? "no test ran" : "it broke down outside of its tests";
      console.log(`\nnot ok ${file}: ${what} (${how})`);
      this.failures.push(what);
    }
    const times = `${took.seconds.toFixed(1)} s, ${took.cpuSeconds.toFixed(1)} s of CPU time`;
    console.log(`${isPassed ? "PASS" : "FAIL"} ${file} (${tests} tests, ${times})`);
    for (const name of this.#skipped) console.log(`SKIP ${file} > ${name}`);
    return { isPassed, passed, failed: isBroken ? failed + 1 : failed, skipped };
  }
}

/** Shows what failed at the innermost level, where the diagnostics are. */
function showFailures(parser: Parser): void {
  let shown = false;
  parser.on("child", (child) => {
    shown = false;
    child.on("assert", ({ ok, todo }: Result) => (shown ||= !ok && todo === false));
    showFailures(child);
  });
  parser.on("assert", ({ ok, todo, diag, fullname }) => {
    if (!ok && todo === false && !shown) console.log(`\nnot ok ${fullname}\n${indented(stringify(diag ?? {}))}`);
    shown = false;
  });
}

function indented(text: string): string {
  return text.replaceAll(/^/gm, "  ").trimEnd();
}
