import { appendFileSync, closeSync, openSync, readFileSync } from "node:fs";
import { setTimeout as sleep } from "node:timers/promises";

import { freePorts } from "./ports.ts";
import { RunningProgram } from "../processes/program.ts";

const STARTS = 3;

/** Several API servers share two cores: collecting garbage less often and on one of them saves a quarter of their CPU time. */
const GO_ENV = { GOGC: "300", GOMAXPROCS: "1" };

export interface ManagedProcessSpec {
  readonly name: string;
  /** `undefined` where another process runs it, and uses it for other tests as well. */
  readonly command?: string;
  readonly args?: readonly string[];
  /** Standard output and standard error are appended to this file. */
  readonly logFile: string;
  readonly url: string;
  /** Whether the process serves already; a rejection counts as no. */
  readonly isReady: () => Promise<boolean>;
  /** Called after every start and end. */
  readonly onChange: () => void;
}

/** Why a test cannot stop a program. */
export const IS_SHARED = "Cannot do that to a shared control plane: have one of your own by Cluster.start(t, {})";

/** One program of the control plane, which a test can kill, stop, pause and start again. */
export class ManagedProcess {
  readonly name: string;
  readonly url: string;
  readonly logFile: string;
  #spec: ManagedProcessSpec;
  #program: RunningProgram | undefined;
  #ended: Promise<void> = Promise.resolve();

  constructor(spec: ManagedProcessSpec) {
    this.#spec = spec;
    this.name = spec.name;
    this.url = spec.url;
    this.logFile = spec.logFile;
  }

  /** Whether another process runs it. */
  get isShared(): boolean {
    return this.#spec.command === undefined;
  }

  /** The process id, or undefined when it does not run. */
  get pid(): number | undefined {
    return this.#program?.pid;
  }

  /**
   * Starts the program; see waitReady for when it serves.
   * @throws {Error} when it runs already
   */
  start(): void {
    if (this.#program !== undefined) throw new Error(`Cannot start ${this.name}: it runs already`);
    const { command, args = [] } = this.#spec;
    if (command === undefined) throw new Error(IS_SHARED);
    const log = openSync(this.logFile, "a");
    // In a session of its own, Ctrl-C in the terminal reaches the test only, which then ends things in order.
    const env = { ...GO_ENV, ...process.env };
    const options = { detached: true, outlives: true, env, stdout: log, stderr: log } as const;
    const program = new RunningProgram(command, args, options);
    closeSync(log);
    this.#program = program;
    // A program that could not be run writes no log of its own.
    const onError = (error: unknown): void => appendFileSync(this.logFile, `${(error as Error).message}\n`);
    this.#ended = program.ended
      .then(() => undefined, onError)
      .finally(() => {
        this.#program = undefined;
        this.#spec.onChange();
      });
    this.#spec.onChange();
  }

  /**
   * Waits until the program serves.
   * @param timeoutMs in milliseconds, 180,000 by default
   * @throws {Error} with the end of the log when the program ends first or the time is over
   */
  async waitReady(timeoutMs = 180_000): Promise<void> {
    const deadline = performance.now() + timeoutMs;
    while (!(await this.#spec.isReady().catch(() => false))) {
      if (this.#program === undefined) throw new Error(`Cannot start ${this.name}: it ended\n${this.logTail()}`);
      if (performance.now() > deadline) throw new Error(`${this.name} is not ready in time\n${this.logTail()}`);
      await sleep(50);
    }
  }

  /**
   * Ends it at once (SIGKILL), paused or not, and waits until it is gone. Does nothing when it does not run.
   * @throws {Error} when it is still there after 10 seconds
   */
  async kill(): Promise<void> {
    this.#assertOwn();
    this.#program?.signal("SIGKILL");
    if (!(await this.#wait(10_000))) throw new Error(`Cannot end ${this.name}: process ${this.pid} is still there`);
  }

  /**
   * Asks it to end (SIGTERM), resuming it first, and waits until it is gone. An apiserver waits for open watches, up to
   * its --request-timeout; with --shutdown-watch-termination-grace-period=1s it ends them after that time.
   * @param deadlineMs after this many milliseconds it is killed; 70,000 by default, longer than an apiserver drains
   * @returns whether it ended by itself
   */
  async stop(deadlineMs = 70_000): Promise<boolean> {
    this.#assertOwn();
    this.resume();
    this.#program?.signal("SIGTERM");
    if (await this.#wait(deadlineMs)) return true;
    await this.kill();
    return false;
  }

  /** Freezes it (SIGSTOP): its connections stay open and nothing is answered. */
  pause(): void {
    this.#assertOwn();
    this.#program?.pause();
  }

  /** Lets a frozen program go on (SIGCONT). */
  resume(): void {
    this.#program?.resume();
  }

  /**
   * Kills it if it runs, starts it again on the same ports and data, and waits until it serves.
   * @param change replaces the program or its arguments from now on
   * @throws {Error} when it does not become ready
   */
  async restart(change: Partial<Pick<ManagedProcessSpec, "command" | "args">> = {}): Promise<void> {
    await this.kill();
    this.#spec = { ...this.#spec, ...change };
    this.start();
    await this.waitReady();
  }

  /** The last lines of its log. */
  logTail(lines = 20): string {
    return readFileSync(this.logFile, "utf8").trimEnd().split("\n").slice(-lines).join("\n");
  }

  #assertOwn(): void {
    if (this.isShared) throw new Error(IS_SHARED);
  }

  async #wait(timeoutMs: number): Promise<boolean> {
    const timer = new AbortController();
    const timeout = sleep(timeoutMs, false, { signal: timer.signal }).catch(() => false);
    const ended = await Promise.race([this.#ended.then(() => true), timeout]);
    timer.abort();
    return ended;
  }
}

/**
 * Makes and starts a program on ports that are free, with new ones if another process has taken them.
 * @returns the program once it serves
 * @throws {Error} with the end of its log when it does not start
 */
export async function startOnFreePorts(
  count: number,
  make: (ports: number[]) => ManagedProcess,
): Promise<ManagedProcess> {
  for (let attempt = 1; ; attempt++) {
    const process = make(await freePorts(count));
    process.start();
    try {
      await process.waitReady();
      return process;
    } catch (error) {
      await process.kill();
      if (attempt === STARTS || !process.logTail(200).includes("address already in use")) throw error;
    }
  }
}
