import { type ChildProcess, fork } from "node:child_process";
import { startWatchdog } from "../../processes/watchdog.ts";
import type { Order, Report } from "./worker-side.ts";

/** How a {@link WorkerPool} works. */
export interface PoolOptions {
  /** The module that each worker runs; it calls `serve()`. */
  readonly module: string;
  readonly workers: number;
  /** A worker that has a task and says nothing for so many seconds has hung. @default 60 */
  readonly hangSeconds?: number;
  /** A worker is replaced after so many tasks. @default 5_000 */
  readonly maxTasks?: number;
  /** A worker that has more memory than this is replaced. @default 1 GiB */
  readonly maxBytes?: number;
  /** Environment variables beside those of this process. */
  readonly env?: Readonly<Record<string, string | undefined>>;
}

/** What became of a task. */
export type Done<Result> =
  | { readonly kind: "result"; readonly result: Result }
  /** The worker died of it, or hung. */
  | { readonly kind: "lost"; readonly why: string }
  /** The pool was ended before. */
  | { readonly kind: "ended" };

/** Each worker has the next task already while it works, so that it never waits for this process. */
const TASKS_AHEAD = 2;
const END_MS = 10_000;
const STDERR_CHARS = 2_000;

interface Job<Task, Result> extends Order<Task> {
  readonly settle: (done: Done<Result>) => void;
}

interface Worker<Task, Result> {
  readonly process: ChildProcess;
  /** The first one is under way. */
  readonly jobs: Job<Task, Result>[];
  isReady: boolean;
  /** It gets no more tasks, and ends after those that it has. */
  isLeaving: boolean;
  tasks: number;
  silentSeconds: number;
  hung: boolean;
  stderr: string;
}

/**
 * Processes that work side by side. One that dies or hangs takes a single task with it, which is told; the rest goes on in
 * another process. Threads would not do: a hook of the module loader is for a whole process, and a thread that hangs in a loop
 * and fills its memory takes the others with it.
 */
export class WorkerPool<Task, Result> {
  readonly #options: PoolOptions;
  readonly #waiting: Job<Task, Result>[] = [];
  readonly #workers = new Set<Worker<Task, Result>>();
  readonly #watchdog = startWatchdog();
  readonly #ticker: NodeJS.Timeout;
  #nextId = 1;
  #isOver = false;
  #failure: string | undefined;

  constructor(options: PoolOptions) {
    this.#options = options;
    // Seconds are counted, not measured: where this process stood still (Ctrl-Z), its workers did too.
    this.#ticker = setInterval(() => this.#tick(), 1_000);
  }

  /** How many processes the pool keeps. */
  get size(): number {
    return this.#options.workers;
  }

  /** How many tasks keep all processes busy. */
  get atOnce(): number {
    return this.size * TASKS_AHEAD;
  }

  /** Why no worker can start, if so: then nothing is said about any task. */
  get failure(): string | undefined {
    return this.#failure;
  }

  /** The process ids of the workers that run. */
  get pids(): readonly number[] {
    return [...this.#workers].map(({ process: { pid } }) => pid ?? 0);
  }

  /** Does a task when a worker is free for it: in the order of the calls. Never rejects. */
  do(task: Task): Promise<Done<Result>> {
    return new Promise((settle) => {
      this.#waiting.push({ id: this.#nextId++, task, settle });
      this.#share();
    });
  }

  /** Lets the workers end, so that they can write what they measured. What is not done yet is not done any more. */
  async close(): Promise<void> {
    this.#end();
    const gone = [...this.#workers].map(
      ({ process: child }) =>
        new Promise<void>((resolve) => {
          const timer = setTimeout(() => child.kill("SIGKILL"), END_MS);
          child.once("exit", () => {
            clearTimeout(timer);
            resolve();
          });
          if (child.connected) child.disconnect();
        }),
    );
    await Promise.all(gone);
  }

  /** Ends the workers wherever they are. */
  async kill(): Promise<void> {
    for (const { process: child } of this.#workers) child.kill("SIGKILL");
    await this.close();
  }

  #end(): void {
    this.#isOver = true;
    clearInterval(this.#ticker);
    for (const { settle } of this.#waiting.splice(0)) settle({ kind: "ended" });
    if (this.#workers.size === 0) this.#watchdog.disarm();
  }

  #share(): void {
    if (this.#isOver || this.#failure !== undefined) {
      const done =
        this.#failure === undefined ? { kind: "ended" as const } : { kind: "lost" as const, why: this.#failure };
      for (const { settle } of this.#waiting.splice(0)) settle(done);
      return;
    }
    while (this.#waiting.length > 0) {
      const free = this.#freest();
      if (free === undefined) return;
      const job = this.#waiting.shift();
      if (job === undefined) return;
      free.jobs.push(job);
      if (free.isReady) send(free, job);
    }
  }

  /** A worker with the fewest tasks; a new one where all have one and there may be more. */
  #freest(): Worker<Task, Result> | undefined {
    const open = [...this.#workers].filter((worker) => !worker.isLeaving);
    const [least] = open.toSorted((a, b) => a.jobs.length - b.jobs.length);
    if (least !== undefined && least.jobs.length === 0) return least;
    if (open.length < this.#options.workers) return this.#start();
    return least !== undefined && least.jobs.length < TASKS_AHEAD ? least : undefined;
  }

  #start(): Worker<Task, Result> {
    const { module, env } = this.#options;
    // What it prints is no part of what this process prints on standard output.
    const child = fork(module, [], {
      env: { ...process.env, ...env },
      // A simulated cluster makes hundreds of megabytes of objects that live for a moment: so half of the time for garbage goes.
      execArgv: [...process.execArgv, "--min-semi-space-size=64", "--max-semi-space-size=64"],
      stdio: ["ignore", 2, "pipe", "ipc"],
    });
    const worker: Worker<Task, Result> = {
      process: child,
      jobs: [],
      isReady: false,
      isLeaving: false,
      tasks: 0,
      silentSeconds: 0,
      hung: false,
      stderr: "",
    };
    this.#workers.add(worker);
    this.#watch();
    child.stderr?.setEncoding("utf8").on("data", (text: string) => {
      worker.stderr = (worker.stderr + text).slice(-STDERR_CHARS);
    });
    child.on("message", (report: Report<Result>) => this.#onReport(worker, report));
    // A worker that has gone cannot be sent anything: its end is told by "close".
    child.on("error", () => {});
    // "close" comes when all that it said at last has been read, and not at all after disconnect().
    child.on("exit", (code, signal) => {
      if (this.#isOver || worker.isLeaving) this.#onGone(worker, signal ?? `code ${code}`);
    });
    child.on("close", (code, signal) => this.#onGone(worker, signal ?? `code ${code}`));
    return worker;
  }

  #onReport(worker: Worker<Task, Result>, report: Report<Result>): void {
    worker.silentSeconds = 0;
    if ("ready" in report) {
      worker.isReady = true;
      for (const job of worker.jobs) send(worker, job);
      return;
    }
    const job = worker.jobs.shift();
    worker.tasks++;
    const { maxTasks = 5_000, maxBytes = 2 ** 30 } = this.#options;
    if (worker.tasks >= maxTasks || report.bytes > maxBytes) worker.isLeaving = true;
    job?.settle({ kind: "result", result: report.result });
    if (worker.isLeaving && worker.jobs.length === 0 && worker.process.connected) worker.process.disconnect();
    this.#share();
  }

  #onGone(worker: Worker<Task, Result>, how: string): void {
    if (!this.#workers.delete(worker)) return;
    this.#watch();
    const [current, ...others] = worker.jobs.splice(0);
    if (this.#isOver) {
      for (const job of [current, ...others]) job?.settle({ kind: "ended" });
      if (this.#workers.size === 0) this.#watchdog.disarm();
      return;
    }
    const { hangSeconds = 60 } = this.#options;
    const last = worker.stderr.trim();
    const why = worker.hung ? `no answer in ${hangSeconds} s` : `the process ended with ${how}${last && `: ${last}`}`;
    if (!worker.isReady) this.#failure ??= `a worker cannot start: ${why}`;
    current?.settle({ kind: "lost", why });
    this.#waiting.unshift(...others);
    this.#share();
  }

  #watch(): void {
    this.#watchdog.watch(this.pids.filter((pid) => pid > 0));
  }

  #tick(): void {
    const { hangSeconds = 60 } = this.#options;
    for (const worker of this.#workers) {
      if (worker.jobs.length === 0 || ++worker.silentSeconds <= hangSeconds) continue;
      worker.hung = true;
      worker.process.kill("SIGKILL");
    }
  }
}

function send<Task, Result>(worker: Worker<Task, Result>, { id, task }: Job<Task, Result>): void {
  const order: Order<Task> = { id, task };
  // Where the worker has just died, "close" says so.
  if (worker.process.connected) worker.process.send(order, () => {});
}
