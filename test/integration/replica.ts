import { spawn } from "node:child_process";
import { createServer, type AddressInfo } from "node:net";
import { fileURLToPath } from "node:url";
import type { Test } from "tap";
import { type Cluster, eventually } from "./cluster.ts";

const MAIN = fileURLToPath(new URL("../../src/cli/main.ts", import.meta.url));

/** One `ksvm controller` in a process of its own. */
export interface Replica {
  readonly pid: number;
  readonly ended: Promise<number | null>;
  /** Its log, JSON lines. */
  log(): string;
  isLeading(): boolean;
  kill(signal: NodeJS.Signals): void;
  /** The answer of /livez, /readyz or /metrics; status 0 as long as nothing answers. */
  health(path: string): Promise<{ readonly status: number; readonly text: string }>;
}

/** A port that is free now. */
export async function freePort(): Promise<number> {
  const server = createServer();
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const { port } = server.address() as AddressInfo;
  await new Promise((resolve) => server.close(resolve));
  return port;
}

/** Flags that fit a test in which nothing is under way when the storage version changes. */
export const QUICK_FLAGS = ["--settle", "1s", "--convergence-timeout", "20s", "--proof-timeout", "20s"] as const;

/**
 * Starts `ksvm controller` with flags of its own. API servers call `webhookPort` on loopback, which stands for the
 * Service. It ends with the test.
 */
export async function spawnController(
  t: Test,
  cluster: Pick<Cluster, "kubeconfig">,
  options: { readonly webhookPort: number; readonly flags?: readonly string[]; readonly listenPort?: number },
): Promise<Replica> {
  const { webhookPort, flags = [], listenPort = webhookPort } = options;
  const healthPort = await freePort();
  const known = {
    kubeconfig: cluster.kubeconfig,
    "log-level": "info",
    "log-format": "json",
    "webhook-host": "127.0.0.1",
    "webhook-port": listenPort,
    "webhook-url": `https://127.0.0.1:${webhookPort}/validate`,
    "replica-endpoints": `127.0.0.1:${listenPort}`,
    "health-host": "127.0.0.1",
    "health-port": healthPort,
    "shutdown-drain": "1s",
  };
  const args = [
    "controller",
    ...Object.entries(known).map(([flag, value]) => `--${flag}=${value}`),
    ...QUICK_FLAGS,
    ...flags,
  ];
  const child = spawn(process.execPath, [MAIN, ...args], { stdio: ["ignore", "ignore", "pipe"] });
  let log = "";
  child.stderr.on("data", (chunk: Buffer) => (log += chunk.toString()));
  const ended = new Promise<number | null>((resolve) => child.on("close", resolve));
  t.teardown(async () => {
    child.kill("SIGKILL");
    await ended;
  });
  const health = async (path: string): Promise<{ status: number; text: string }> => {
    try {
      const answer = await fetch(`http://127.0.0.1:${healthPort}${path}`);
      return { status: answer.status, text: await answer.text() };
    } catch {
      return { status: 0, text: "" };
    }
  };
  const isLeading = (): boolean => log.lastIndexOf('"Leading:') > log.lastIndexOf('"Not leading');
  return { pid: child.pid ?? 0, ended, log: () => log, isLeading, kill: (signal) => void child.kill(signal), health };
}

/** Waits until a replica serves the webhook. */
export async function untilReady(replica: Replica): Promise<void> {
  await eventually(
    async () => (await replica.health("/readyz")).status === 200,
    `a replica is ready:\n${replica.log()}`,
  );
}
