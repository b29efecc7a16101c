import { spawn } from "node:child_process";
import { once } from "node:events";
import { text } from "node:stream/consumers";
import { setTimeout as sleep } from "node:timers/promises";

import { ensureBinaries } from "../test/control-plane/binaries.ts";
import type { Cluster } from "../test/integration/cluster.ts";
import { endWithThisProcess } from "../test/processes/watchdog.ts";
import { type Condition, MIGRATIONS, startInTree } from "./in-tree.ts";
import { runKsvm } from "./run-ksvm.ts";

/** What a tool is handed. */
export interface ToolContext {
  readonly cluster: Cluster;
  /** ksvm, compiled. */
  readonly program: string;
  readonly signal: AbortSignal;
}

/** Rewrites every Secret. @returns the seconds from its start to its end */
export type Tool = (context: ToolContext) => Promise<number>;

/** Each of them by its name, in the order of a round. */
export const TOOLS: Readonly<Record<string, Tool>> = {
  "ksvm reencrypt": reencryptByKsvm,
  "kubectl get | kubectl replace": replaceByKubectl,
  "in-tree controller, limits lifted": migrateInTree,
};

const POLL_MS = 250;

async function reencryptByKsvm({ cluster, program, signal }: ToolContext): Promise<number> {
  const args = ["reencrypt", "secrets", "--unsafe-settle", "1s", "-o", "json"];
  const { code, seconds, stderr } = await runKsvm(args, { kubeconfig: cluster.kubeconfig, signal, program });
  if (code !== 0) throw new Error(`Cannot count this run: ksvm ended with ${code}: ${stderr}`);
  return seconds;
}

/** As the Kubernetes documentation has it. */
async function replaceByKubectl({ cluster, signal }: ToolContext): Promise<number> {
  const { kubectl } = await ensureBinaries(["kubectl"]);
  const script = 'set -e; "$0" get secrets --all-namespaces -o json | "$0" replace -f - > /dev/null';
  const startedAt = performance.now();
  const env = { ...process.env, KUBECONFIG: cluster.kubeconfig };
  const child = spawn("sh", ["-c", script, kubectl], { env, detached: true, stdio: ["ignore", "ignore", "pipe"] });
  endWithThisProcess(child);
  const kill = (): void => void child.kill("SIGKILL");
  signal.addEventListener("abort", kill, { once: true });
  const [stderr, [code]] = await Promise.all([text(child.stderr), once(child, "close")]);
  signal.removeEventListener("abort", kill);
  if (code !== 0) throw new Error(`Cannot count this run: kubectl ended with ${String(code)}: ${stderr}`);
  return (performance.now() - startedAt) / 1_000;
}

/** The controller runs for this measurement only; its start is no part of it, what it waits for after that is. */
async function migrateInTree({ cluster, signal }: ToolContext): Promise<number> {
  const { api } = cluster;
  const manager = await startInTree(cluster, { extraArgs: ["--kube-api-qps=100000", "--kube-api-burst=100000"] });
  const name = `secrets-${Math.round(performance.now())}`;
  try {
    const startedAt = performance.now();
    await api.create(MIGRATIONS, {
      apiVersion: `${MIGRATIONS.group}/${MIGRATIONS.version}`,
      kind: "StorageVersionMigration",
      metadata: { name },
      spec: { resource: { group: "", resource: "secrets" } },
    });
    for (;;) {
      const { status } = await api.get<{ status?: { conditions?: readonly Condition[] } }>(MIGRATIONS, { name });
      const isTrue = (type: string): boolean =>
        (status?.conditions ?? []).some((condition) => condition.type === type && condition.status === "True");
      if (isTrue("Succeeded")) return (performance.now() - startedAt) / 1_000;
      if (isTrue("Failed")) throw new Error(`Cannot count this run: it failed: ${JSON.stringify(status?.conditions)}`);
      await sleep(POLL_MS, undefined, { signal });
    }
  } finally {
    await manager.kill();
    await api.delete(MIGRATIONS, { name });
  }
}
