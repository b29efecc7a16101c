import { loadavg } from "node:os";

import type { Cluster } from "../test/integration/cluster.ts";
import { migrateInTree, startInTree } from "./in-tree.ts";
import { cpuSecondsOf, peakMegabytesOf } from "./process-usage.ts";
import { runKsvm, type Usage } from "./run-ksvm.ts";
import type { StaleObjects } from "./stale-objects.ts";

/** What one migration of all objects took. */
export interface Measurement {
  readonly who: string;
  /** From its start until it was done, storedVersions included. */
  readonly seconds: number;
  /** Of these, how many had passed when the first object was written. */
  readonly firstWriteSeconds: number;
  /** The migrator's own CPU seconds and peak memory. */
  readonly own: Usage;
  readonly apiserverCpuSeconds: number;
  readonly storedVersionsPruned: boolean;
  /** The load average over one minute before it began: what else the machine was doing. */
  readonly loadBefore: number;
}

/** What every measurement is handed. */
export interface Bench {
  readonly cluster: Cluster;
  readonly stale: StaleObjects;
  readonly signal: AbortSignal;
}

type Outcome = Pick<Measurement, "seconds" | "own">;

/** `ksvm migrate` as a child process. @param program as in MigrateBenchOptions */
export async function measureKsvm(
  bench: Bench,
  maxInFlight: number,
  program: string | undefined,
): Promise<Measurement> {
  const { cluster, stale, signal } = bench;
  await stale.renew(signal);
  return await measure(
    bench,
    `ksvm, ${maxInFlight} in flight${program === undefined ? "" : `, ${program}`}`,
    async () => {
      const args = [
        "migrate",
        stale.kind.name,
        "--unsafe-settle",
        "1s",
        "--max-in-flight",
        String(maxInFlight),
        "-o",
        "json",
      ];
      const { code, stderr, seconds, usage } = await runKsvm(args, {
        kubeconfig: cluster.kubeconfig,
        signal,
        ...(program === undefined ? {} : { program }),
      });
      if (code !== 0 || usage === undefined)
        throw new Error(`Cannot count this run: ksvm ended with ${code}: ${stderr}`);
      return { seconds, own: usage };
    },
  );
}

/** The in-tree controller, its client limits lifted; it runs for this measurement only. */
export async function measureInTree(bench: Bench): Promise<Measurement> {
  const { cluster, stale, signal } = bench;
  const manager = await startInTree(cluster, { extraArgs: ["--kube-api-qps=100000", "--kube-api-burst=100000"] });
  try {
    await stale.renew(signal);
    return await measure(bench, "in-tree, limits lifted", async () => {
      const before = cpuSecondsOf(manager.pid);
      const { seconds, outcome, conditions } = await migrateInTree(cluster, stale.kind, signal);
      if (outcome !== "Succeeded")
        throw new Error(`Cannot count this run: it ${outcome}: ${JSON.stringify(conditions)}`);
      const cpuSeconds = cpuSecondsOf(manager.pid) - before;
      return { seconds, own: { cpuSeconds, peakMegabytes: peakMegabytesOf(manager.pid) } };
    });
  } finally {
    await manager.kill();
  }
}

async function measure(
  { cluster, stale, signal }: Bench,
  who: string,
  run: () => Promise<Outcome>,
): Promise<Measurement> {
  const pid = cluster.controlPlane.apiservers[0]?.pid;
  const loadBefore = loadavg()[0] ?? 0;
  const done = new AbortController();
  const firstWrite = await stale.watchFirstWrite(AbortSignal.any([signal, done.signal]));
  const cpuBefore = cpuSecondsOf(pid);
  const startedAt = performance.now();
  try {
    const outcome = await run();
    const apiserverCpuSeconds = cpuSecondsOf(pid) - cpuBefore;
    const firstWriteSeconds = ((await firstWrite.cameAt) - startedAt) / 1_000;
    const storedVersionsPruned = await stale.verify();
    return { who, ...outcome, firstWriteSeconds, apiserverCpuSeconds, storedVersionsPruned, loadBefore };
  } finally {
    done.abort();
  }
}
