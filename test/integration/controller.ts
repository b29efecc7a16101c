import { Writable } from "node:stream";
import type { Test } from "tap";
import { Interruption } from "../../src/cli/shared/interruption.ts";
import { runProgram } from "../../src/cli/program.ts";
import { startProgram, KSVM } from "../processes/program.ts";
import { type Cluster, eventually } from "./cluster.ts";
import { freePorts } from "../control-plane/ports.ts";

/** One `ksvm controller`. */
export interface Controller {
  /** Its log up to now, one JSON object a line. */
  log(): string;
  isLeading(): boolean;
  /** What /livez, /readyz or /metrics answers; status 0 where nothing answers within 5 s. */
  health(path: string): Promise<{ readonly status: number; readonly text: string }>;
  /** Where API servers reach its webhook. */
  readonly webhookUrl: string;
  /** Ends it as SIGTERM does. @returns the exit code */
  stop(): Promise<number | null>;
}

/** The same in a process of its own. */
export interface SpawnedController extends Controller {
  readonly pid: number;
  signal(signal: NodeJS.Signals): void;
  readonly ended: Promise<unknown>;
}

interface ControllerOptions {
  /** Flags beside those that a test needs anyway, which they may overrule. @default none */
  readonly flags?: readonly string[];
  /** The user that it acts as. @default the admin */
  readonly kubeconfig?: string;
  /** Returns before it serves. @default it waits until it leads and is ready */
  readonly isAwaited?: boolean;
}

interface Place {
  readonly args: readonly string[];
  readonly healthPort: number;
  readonly webhookUrl: string;
}

/** Flags for a test in which nothing is under way when the storage version changes. No trigger, unless it asks for one. */
async function place(
  cluster: Cluster,
  { flags = [], kubeconfig = cluster.kubeconfig }: ControllerOptions,
): Promise<Place> {
  const [healthPort = 0, webhookPort = 0] = await freePorts(2);
  const webhookUrl = `https://127.0.0.1:${webhookPort}/validate`;
  const known = {
    kubeconfig,
    "log-level": "info",
    "log-format": "json",
    "webhook-host": "127.0.0.1",
    "webhook-port": webhookPort,
    "webhook-url": webhookUrl,
    "replica-endpoints": `127.0.0.1:${webhookPort}`,
    "health-host": "127.0.0.1",
    "health-port": healthPort,
    "shutdown-drain": "0s",
    settle: "50ms",
    "convergence-timeout": "20s",
    "proof-timeout": "20s",
    trigger: "off",
  };
  const given = new Set(flags.map((flag) => flag.split("=")[0]));
  const own = Object.entries(known).filter(([flag]) => !given.has(`--${flag}`));
  return {
    args: ["controller", ...own.map(([flag, value]) => `--${flag}=${value}`), ...flags],
    healthPort,
    webhookUrl,
  };
}

/**
 * Runs `ksvm controller` in this process, with a webhook on loopback. It ends with the test. The CRDs and the namespace of
 * the system have to be there.
 * @param options.flags each as `--flag=value`
 */
export async function startController(t: Test, cluster: Cluster, options: ControllerOptions = {}): Promise<Controller> {
  const { args, healthPort, webhookUrl } = await place(cluster, options);
  const interruption = new AbortController();
  let log = "";
  const stderr = new Writable({
    write(chunk: Buffer, _encoding, done) {
      log += chunk.toString();
      done();
    },
  });
  const stdout = new Writable({ write: (_chunk, _encoding, done) => done() });
  const ended = runProgram(args, { stdout, stderr, signal: interruption.signal });
  const stop = async (): Promise<number> => {
    interruption.abort(new Interruption("SIGTERM"));
    return ended;
  };
  t.teardown(stop);
  const controller = { ...shown(() => log, healthPort), webhookUrl, stop };
  if (options.isAwaited !== false) await untilLeading(controller);
  return controller;
}

/** The same in a process of its own, which a test can kill and pause. */
export async function spawnController(
  t: Test,
  cluster: Cluster,
  options: ControllerOptions = {},
): Promise<SpawnedController> {
  const { args, healthPort, webhookUrl } = await place(cluster, options);
  const program = startProgram(t, process.execPath, [KSVM, ...args], { stdout: "ignore", withoutTap: true });
  const stop = async (): Promise<number | null> => {
    program.signal("SIGTERM");
    return (await program.ended).code;
  };
  const controller = {
    ...shown(() => program.stderr, healthPort),
    webhookUrl,
    stop,
    pid: program.pid ?? 0,
    signal: (signal: NodeJS.Signals) => program.signal(signal),
    ended: program.ended,
  };
  if (options.isAwaited !== false) await untilLeading(controller);
  return controller;
}

function shown(log: () => string, healthPort: number): Pick<Controller, "log" | "isLeading" | "health"> {
  return {
    log,
    isLeading: () => log().lastIndexOf('"Started leading:') > log().lastIndexOf('"Stopped leading'),
    health: async (path) => {
      try {
        const answer = await fetch(`http://127.0.0.1:${healthPort}${path}`, { signal: AbortSignal.timeout(5_000) });
        return { status: answer.status, text: await answer.text() };
      } catch {
        return { status: 0, text: "" };
      }
    },
  };
}

async function untilLeading(controller: Controller): Promise<void> {
  const isReady = async (): Promise<boolean> =>
    controller.isLeading() && (await controller.health("/readyz")).status === 200;
  await eventually(isReady, "the controller leads and is ready");
}
