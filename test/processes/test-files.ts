import { type ChildProcess, spawn } from "node:child_process";
import { Parser, type Result } from "tap-parser";
import { stringify } from "yaml";
import { startWatchdog } from "./watchdog.ts";

/** Named tests: those directly in a file. What they nest is part of them. */
export interface Counts {
  readonly passed: number;
  readonly failed: number;
  readonly skipped: number;
}

/** How {@link TestFiles} are run. */
export interface RunOptions {
  /** How many files run side by side. */
  readonly jobs: number;
  /** A file fails after so many seconds, unless it sets a timeout of its own. */
  readonly timeoutSeconds: number;
}

/** A file ends itself after its timeout. One that is in an endless loop cannot: it is killed after this many times as long. */
const PATIENCE = 2;

/**
 * Runs test files, each in a process of its own, and counts their tests. The runner of tap would do the same. It has each process, and each
 * Node that a test starts, load modules that measure coverage: that takes more than half of the time of a small test.
 */
export class TestFiles {
  readonly #cwd: string;
  readonly #env: NodeJS.ProcessEnv;
  readonly #children = new Set<ChildProcess>();
  readonly #failures: string[] = [];
  #isInterrupted = false;

  constructor(cwd: string, env: NodeJS.ProcessEnv) {
    this.#cwd = cwd;
    this.#env = env;
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

  /** Runs the files in their order. @returns what was counted in each; a file that was not run any more counts as one failed test */
  async run(files: readonly string[], options: RunOptions): Promise<readonly Counts[]> {
    const waiting = [...files];
    const all: Counts[] = [];
    const watchdog = startWatchdog();
    const watch = (): void =>
      watchdog.watch([...this.#children].map(({ pid }) => -(pid ?? 0)).filter((pid) => pid < 0));
    const lane = async (): Promise<void> => {
      for (let next = waiting.shift(); next !== undefined; next = waiting.shift()) {
        all.push(this.#isInterrupted ? this.#notRun(next) : await this.#runFile(next, options, watch));
      }
    };
    await Promise.all(Array.from({ length: options.jobs }, lane));
    watchdog.disarm();
    return all;
  }

  async #runFile(file: string, { timeoutSeconds }: RunOptions, watch: () => void): Promise<Counts> {
    const startedAt = performance.now();
    const env = { ...this.#env, TAP: "1", TAP_TIMEOUT: String(timeoutSeconds) };
    // In a process group of its own, so that what it started ends with it where it has to be killed.
    const child = spawn(process.execPath, [file], {
      cwd: this.#cwd,
      env,
      detached: true,
      stdio: ["ignore", "pipe", "inherit"],
    });
    this.#children.add(child);
    watch();
    const record = new FileRecord();
    child.stdout.pipe(record.parser);
    const timer = setTimeout(() => signalGroup(child, "SIGKILL"), timeoutSeconds * PATIENCE * 1_000);
    const how = await new Promise<string>((done) => {
      child.on("error", (error) => done(error.message));
      child.on("close", (code, signal) => done(signal ?? `code ${code}`));
    });
    clearTimeout(timer);
    this.#children.delete(child);
    watch();
    const counts = record.end(file, how, (performance.now() - startedAt) / 1_000);
    this.#failures.push(...record.failures.map((name) => `${file} > ${name}`));
    return counts;
  }

  #notRun(file: string): Counts {
    console.log(`FAIL ${file}: no result`);
    this.#failures.push(`${file} > no result`);
    return { passed: 0, failed: 1, skipped: 0 };
  }
}

function signalGroup({ pid }: ChildProcess, signal: NodeJS.Signals): void {
  try {
    if (pid !== undefined) process.kill(-pid, signal);
  } catch {
    // It has gone in this moment.
  }
}

/** The tests of one file, as its TAP stream tells them. */
class FileRecord {
  readonly parser = new Parser();
  readonly failures: string[] = [];
  readonly #counts = { passed: 0, failed: 0, skipped: 0 };
  #isOk = false;

  constructor() {
    this.parser.on("assert", ({ ok, skip, todo, name }: Result) => {
      const outcome = skip !== false || todo !== false ? "skipped" : ok ? "passed" : "failed";
      this.#counts[outcome]++;
      if (outcome === "failed") this.failures.push(name);
    });
    this.parser.on("complete", ({ ok }) => (this.#isOk = ok));
    showFailures(this.parser);
  }

  /**
   * A file that broke down outside of its tests (a crash, a failed import), or has none, counts as a failed test.
   * @param how its process ended: "code 0", or a signal
   */
  end(file: string, how: string, seconds: number): Counts {
    const { passed, failed, skipped } = this.#counts;
    const tests = passed + failed + skipped;
    const isPassed = this.#isOk && how === "code 0" && tests > 0;
    const isBroken = !isPassed && failed === 0;
    if (isBroken) {
      const what = tests === 0 ? "no test ran" : "it broke down outside of its tests";
      console.log(`\nnot ok ${file}: ${what} (${how})`);
      this.failures.push(what);
    }
    console.log(`${isPassed ? "PASS" : "FAIL"} ${file} (${tests} tests, ${seconds.toFixed(1)} s)`);
    return { passed, failed: isBroken ? 1 : failed, skipped };
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
