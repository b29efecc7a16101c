import { createServer, type AddressInfo } from "node:net";
import type { Test } from "tap";
import { KSVM, startProgram } from "./program.ts";
import { type Cluster, eventually } from "../integration/cluster.ts";

/** One `ksvm controller` in a process of its own. */
export interface Replica {
  readonly pid: number;
  readonly ended: Promise<number | null>;
  /** Its log, JSON lines. */
  log(): string;
  isLeading(): boolean;
  /** As it stands in Leases and freezes; known once it has started. */
  identity(): string;
  kill(signal: NodeJS.Signals): void;
  /** Where it shows its health and its metrics, as host:port. */
  readonly healthAddress: string;
  /** The answer of /livez, /readyz or /metrics; status 0 where nothing answers within 5 s. */
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
export const QUICK_FLAGS = ["--unsafe-settle", "1s"] as const;

/**
 * Flags by which the trigger leaves built-in resources alone: one group is enough to see it, and all of them would be
 * migrated once, too.
 */
export const ONLY_CUSTOM = [
  "--trigger-exclude-groups",
  "core,apps,autoscaling,batch,policy,networking.k8s.io,rbac.authorization.k8s.io,storage.k8s.io,scheduling.k8s.io," +
    "coordination.k8s.io,node.k8s.io,discovery.k8s.io,flowcontrol.apiserver.k8s.io,admissionregistration.k8s.io," +
    "apiextensions.k8s.io,apiregistration.k8s.io,certificates.k8s.io,events.k8s.io,resource.k8s.io,migration.k8s.io," +
    "authentication.k8s.io,authorization.k8s.io",
] as const;

/** What a replica is started with. */
export interface ReplicaOptions {
  /** Where API servers call the webhook. */
  readonly webhookPort: number;
  /** Has API servers call the Service instead, which nothing here leads to. @default false */
  readonly byService?: boolean;
  /** Where it is served. @default webhookPort */
  readonly listenPort?: number;
  /** @default none */
  readonly flags?: readonly string[];
  /** The module to start. @default that of src */
  readonly main?: string;
}

/**
 * Starts `ksvm controller` with flags of its own. API servers call `webhookPort` on loopback, which stands for the
 * Service. It ends with the test.
 */
export async function spawnController(
  t: Pick<Test, "teardown">,
  cluster: Pick<Cluster, "kubeconfig">,
  options: ReplicaOptions,
): Promise<Replica> {
  const { webhookPort, byService = false, flags = [], listenPort = webhookPort, main = KSVM } = options;
  const healthPort = await freePort();
  const known = {
    kubeconfig: cluster.kubeconfig,
    "log-level": "info",
    "log-format": "json",
    "webhook-host": "127.0.0.1",
    "webhook-port": listenPort,
    ...(byService ? {} : { "webhook-url": `https://127.0.0.1:${webhookPort}/validate` }),
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
  const program = startProgram(t, process.execPath, [main, ...args], { stdout: "ignore", withoutTap: true });
  const log = (): string => program.stderr;
  const health = async (path: string): Promise<{ status: number; text: string }> => {
    try {
      const answer = await fetch(`http://127.0.0.1:${healthPort}${path}`, { signal: AbortSignal.timeout(5_000) });
      return { status: answer.status, text: await answer.text() };
    } catch {
      return { status: 0, text: "" };
    }
  };
  const isLeading = (): boolean => log().lastIndexOf('"Started leading:') > log().lastIndexOf('"Stopped leading');
  const identity = (): string => /"identity":"([^"]+)"/.exec(log())?.[1] ?? "";
  return {
    pid: program.pid ?? 0,
    ended: program.ended.then(({ code }) => code),
    log,
    isLeading,
    identity,
    kill: (signal) => program.signal(signal),
    healthAddress: `127.0.0.1:${healthPort}`,
    health,
  };
}

/** Waits until a replica serves the webhook. */
export async function untilReady(replica: Replica): Promise<void> {
  await eventually(
    async () => (await replica.health("/readyz")).status === 200,
    `a replica is ready:\n${replica.log()}`,
  );
}
