import { type AddressInfo, connect, createServer, type Socket } from "node:net";
import { Writable } from "node:stream";
import type { Test } from "tap";
import { WEBHOOK_NAME } from "../../src/freeze/rule.ts";
import { runProgram } from "../../src/cli/program.ts";
import { Interruption } from "../../src/cli/shared/interruption.ts";
import { WEBHOOK_CONFIGURATIONS, isConflict } from "../api-client.ts";
import { freePorts } from "../control-plane/ports.ts";
import { KSVM, startProgram } from "../processes/program.ts";
import { type Cluster, eventually } from "./cluster.ts";

/** One `ksvm controller`. */
export interface Controller {
  /** Its log up to now, one JSON object a line. */
  log(): string;
  isLeading(): boolean;
  /** As it stands in Leases and freezes. */
  identity(): string;
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
  /** Flags beside those that a test needs anyway, which they may overrule; each as `--flag=value`. @default none */
  readonly flags?: readonly string[];
  /** The user that it acts as. @default the admin */
  readonly kubeconfig?: string;
  /** What leads API servers to the replica that is ready, where there are several. @default they call this one */
  readonly service?: WebhookService;
  /** What is waited for: nothing, that it serves, or that it also leads. @default "leading" */
  readonly until?: "started" | "ready" | "leading";
}

/** Flags that have a hundred objects take some five seconds. */
export const SLOWLY = ["--max-qps=8"] as const;

/**
 * Runs `ksvm controller` in this process, with a webhook on loopback and no trigger, in a cluster with the CRDs and the
 * namespace of the system. It ends with the test. There may be several: one leads.
 */
export async function startController(t: Test, cluster: Cluster, options: ControllerOptions = {}): Promise<Controller> {
  const { args, ...place } = await prepare(cluster, options);
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
  const controller = { ...shown(() => log, place), stop };
  await untilStarted(controller, options.until);
  return controller;
}

/** The same in a process of its own, which a test can kill and pause. */
export async function spawnController(
  t: Test,
  cluster: Cluster,
  options: ControllerOptions = {},
): Promise<SpawnedController> {
  const { args, ...place } = await prepare(cluster, options);
  const program = startProgram(t, process.execPath, [KSVM, ...args], { stdout: "ignore", withoutTap: true });
  const stop = async (): Promise<number | null> => {
    program.signal("SIGTERM");
    return (await program.ended).code;
  };
  const controller = {
    ...shown(() => program.stderr, place),
    stop,
    pid: program.pid ?? 0,
    signal: (signal: NodeJS.Signals) => program.signal(signal),
    ended: program.ended,
  };
  await untilStarted(controller, options.until);
  return controller;
}

interface Place {
  readonly healthPort: number;
  readonly webhookUrl: string;
}

async function prepare(cluster: Cluster, { flags = [], kubeconfig = cluster.kubeconfig, service }: ControllerOptions) {
  const [healthPort = 0, webhookPort = 0] = await freePorts(2);
  const webhookUrl = `https://127.0.0.1:${service?.port ?? webhookPort}/validate`;
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
    "unsafe-settle": "50ms",
    trigger: "off",
  };
  const given = new Set(flags.map((flag) => flag.split("=")[0]));
  const own = Object.entries(known).filter(([flag]) => !given.has(`--${flag}`));
  await createWebhookConfiguration(cluster);
  service?.add(healthPort, webhookPort);
  const args = ["controller", ...own.map(([flag, value]) => `--${flag}=${value}`), ...flags];
  return { args, healthPort, webhookUrl };
}

/** The controller fills it in at once. It creates one that is missing, too, but only after five seconds. */
async function createWebhookConfiguration({ api }: Cluster): Promise<void> {
  const configuration = {
    apiVersion: "admissionregistration.k8s.io/v1",
    kind: "ValidatingWebhookConfiguration",
    metadata: { name: WEBHOOK_NAME },
  };
  await api.create(WEBHOOK_CONFIGURATIONS, configuration).catch((error: unknown) => {
    // Another controller has it.
    if (!isConflict(error)) throw error;
  });
}

function shown(log: () => string, { healthPort, webhookUrl }: Place): Omit<Controller, "stop"> {
  return {
    webhookUrl,
    log,
    isLeading: () => log().lastIndexOf('"Started leading:') > log().lastIndexOf('"Stopped leading'),
    identity: () => /"identity":"([^"]+)"/.exec(log())?.[1] ?? "",
    health: (path) => askHealth(healthPort, path),
  };
}

/** What /livez, /readyz or /metrics answers at the port; status 0 where nothing answers within 5 s. */
export async function askHealth(port: number, path: string) {
  try {
    const answer = await fetch(`http://127.0.0.1:${port}${path}`, { signal: AbortSignal.timeout(5_000) });
    return { status: answer.status, text: await answer.text() };
  } catch {
    return { status: 0, text: "" };
  }
}

async function untilStarted(controller: Controller, until: ControllerOptions["until"] = "leading"): Promise<void> {
  if (until === "started") return;
  await eventually(async () => (await controller.health("/readyz")).status === 200, "the controller is ready");
  if (until === "leading") await untilLeading(controller);
}

/** What a Service is to the replicas: a connection goes to one that is ready. Those that there are stay, as with a Service. */
export class WebhookService {
  readonly port: number;
  readonly #replicas: { readonly healthPort: number; readonly webhookPort: number }[] = [];

  private constructor(port: number) {
    this.port = port;
  }

  /** Ends with the test. */
  static async start(t: Test): Promise<WebhookService> {
    const server = createServer((socket) => void service.#connect(socket));
    await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
    const service = new WebhookService((server.address() as AddressInfo).port);
    t.teardown(() => server.close());
    return service;
  }

  /** Sends connections to a replica while it is ready. */
  add(healthPort: number, webhookPort: number): void {
    this.#replicas.push({ healthPort, webhookPort });
  }

  async #connect(socket: Socket): Promise<void> {
    socket.on("error", () => undefined);
    const asked = this.#replicas.map(async ({ healthPort, webhookPort }) => {
      const { status } = await askHealth(healthPort, "/readyz");
      return status === 200 ? webhookPort : Promise.reject(new Error("not ready"));
    });
    // A replica that is paused does not hold the others up.
    const port = await Promise.any(asked).catch(() => undefined);
    if (port === undefined) {
      socket.destroy();
      return;
    }
    const upstream = connect(port, "127.0.0.1");
    upstream.on("error", () => socket.destroy());
    socket.on("close", () => upstream.destroy());
    socket.pipe(upstream).pipe(socket);
  }
}

/** Waits until it leads. */
export async function untilLeading(controller: Controller): Promise<void> {
  await eventually(async () => controller.isLeading(), "the controller leads");
}
