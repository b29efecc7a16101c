import { type ChildProcess, spawn } from "node:child_process";
import { fileURLToPath } from "node:url";
import { waitUntilStopped } from "./stopped.ts";
import { endWithThisProcess } from "./watchdog.ts";

/** How a program ended. */
export interface ProgramEnd {
  /** `null` where a signal ended it. */
  readonly code: number | null;
  readonly stdout: string;
  readonly stderr: string;
}

/** How a program is started. */
export interface ProgramOptions {
  /** @default that of this process */
  readonly cwd?: string;
  /** @default that of this process */
  readonly env?: NodeJS.ProcessEnv | undefined;
  /** What it reads on standard input. @default it has none */
  readonly input?: string;
  /** Where its standard output goes: into {@link RunningProgram.stdout}, to the terminal, or to a file descriptor. @default "pipe" */
  readonly stdout?: "pipe" | "inherit" | "ignore" | number;
  /** The same for standard error. @default "pipe" */
  readonly stderr?: "pipe" | "inherit" | "ignore" | number;
  /** Puts it in a process group of its own, so that Ctrl-C in the terminal reaches this process only. @default false */
  readonly detached?: boolean;
  /** Has it outlive this process, and keeps this process from waiting for it. @default false */
  readonly outlives?: boolean;
  /**
   * Starts it without NODE_OPTIONS: tap has every Node that a test starts load modules of its own, which double the memory
   * by their source maps. @default false
   */
  readonly withoutTap?: boolean;
  /** Kills it after this many milliseconds. @default never */
  readonly timeoutMs?: number;
}

/** What ends a program with a test. */
export interface Teardown {
  teardown(end: () => unknown): void;
}

/** The program as it is shipped. The runner of the tests builds it. */
export const KSVM = fileURLToPath(new URL("../../dist/ksvm.js", import.meta.url));

/** A program in a process of its own. It ends when this process does, even if that is killed. */
export class RunningProgram {
  /** Resolves once it has ended and all of its output has been read. Rejects where it could not be started. */
  readonly ended: Promise<ProgramEnd>;
  readonly #child: ChildProcess;
  readonly #listeners: (() => void)[] = [];
  #isRunning = true;
  #stdout = "";
  #stderr = "";

  constructor(command: string, args: readonly string[], options: ProgramOptions = {}) {
    const { cwd, env, input, stdout = "pipe", stderr = "pipe", detached = false, outlives = false } = options;
    const line = options.withoutTap === true ? ["env", "-u", "NODE_OPTIONS", command, ...args] : [command, ...args];
    const [program = command, ...rest] = line;
    const child = spawn(program, rest, {
      cwd,
      env: env ?? process.env,
      detached,
      stdio: [input === undefined ? "ignore" : "pipe", stdout, stderr],
      timeout: options.timeoutMs,
      killSignal: "SIGKILL",
    });
    this.#child = child;
    if (outlives) child.unref();
    else endWithThisProcess(child);
    child.stdout?.setEncoding("utf8").on("data", (text: string) => {
      this.#stdout += text;
      this.#tell();
    });
    child.stderr?.setEncoding("utf8").on("data", (text: string) => {
      this.#stderr += text;
      this.#tell();
    });
    // A program that does not read what it is given is no failure.
    child.stdin?.on("error", () => undefined).end(input);
    const closed = new Promise<number | null>((resolve, reject) => child.on("error", reject).on("close", resolve));
    this.ended = closed
      .then((code) => ({ code, stdout: this.#stdout, stderr: this.#stderr }))
      .finally(() => {
        this.#isRunning = false;
        this.#tell();
      });
    // Who starts it may look at how it ended later, or never.
    this.ended.catch(() => undefined);
  }

  /** `undefined` where it could not be started. */
  get pid(): number | undefined {
    return this.#child.pid;
  }

  /** Whether it runs, or has ended with some of its output still to be read. */
  get isRunning(): boolean {
    return this.#isRunning;
  }

  /** What it has written so far to standard output, where that is a pipe. */
  get stdout(): string {
    return this.#stdout;
  }

  /** What it has written so far to standard error, where that is a pipe. */
  get stderr(): string {
    return this.#stderr;
  }

  /** Calls the listener whenever it has written something, and at its end. */
  onOutput(listener: () => void): void {
    this.#listeners.push(listener);
  }

  /** Closes the reading end of its standard error, as a shell does that is gone. */
  closeStderr(): void {
    this.#child.stderr?.destroy();
  }

  /** Sends it a signal. */
  signal(signal: NodeJS.Signals): void {
    this.#child.kill(signal);
  }

  /** Stops it as SIGSTOP does: its connections stay open, and it answers nothing. Returns once it stands still. */
  pause(): void {
    this.signal("SIGSTOP");
    if (this.pid !== undefined) waitUntilStopped(this.pid);
  }

  /** Lets it go on. */
  resume(): void {
    this.signal("SIGCONT");
  }

  /** Ends it at once, as kill -9 does, paused or not. */
  async kill(): Promise<ProgramEnd> {
    this.signal("SIGKILL");
    return this.ended;
  }

  #tell(): void {
    for (const listener of this.#listeners) listener();
  }
}

/** Starts a program that ends with the test. */
export function startProgram(
  t: Teardown,
  command: string,
  args: readonly string[],
  options?: ProgramOptions,
): RunningProgram {
  const program = new RunningProgram(command, args, options);
  t.teardown(() => program.kill());
  return program;
}

/** Starts ksvm as a user does. It ends with the test. */
export function startKsvm(t: Teardown, args: readonly string[], options?: ProgramOptions): RunningProgram {
  return startProgram(t, process.execPath, [KSVM, ...args], options);
}
