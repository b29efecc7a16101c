import { spawn } from "node:child_process";
import { once } from "node:events";
import { text } from "node:stream/consumers";
import { ensureBinaries } from "../../test/control-plane/binaries.ts";
import { GROUP } from "../../test/integration/crd-fixture.ts";
import { endWithThisProcess } from "../../test/processes/watchdog.ts";
import { MIGRATIONS, migrateInTree, startInTree } from "../in-tree.ts";
import { cpuSecondsOf, peakMegabytesOf } from "../process-usage.ts";
import { runKsvm } from "../run-ksvm.ts";
import type { BareLoop } from "./bare-loop.ts";
import { HelperProcess } from "./helper-process.ts";
import { migrateByPeer } from "./peer.ts";
import type { Ring, Took } from "./ring.ts";

/** Something that rewrites all objects of a CRD. */
export interface Contender {
  readonly name: string;
  run(ring: Ring): Promise<Took>;
}

/** `ksvm migrate`, from the start of the process to its end, freeze and prune included. */
export function ksvm(name: string, flags: readonly string[] = []): Contender {
  return {
    name,
    async run({ stale, route, program, signal }) {
      const args = [
        "migrate",
        stale.kind.name,
        "--unsafe-settle",
        "1s",
        "--apiserver-endpoints",
        route.url,
        "-o",
        "json",
        ...flags,
      ];
      const { code, stdout, stderr, seconds, usage } = await runKsvm(args, {
        kubeconfig: route.kubeconfig,
        signal,
        program,
      });
      if (code !== 0 || usage === undefined)
        throw new Error(`Cannot count this run: ksvm ended with ${code}: ${stderr}`);
      return { seconds, settleSeconds: settleSecondsOf(stdout), own: usage };
    },
  };
}

/** The longest wait that a run announces before it rewrites. */
function settleSecondsOf(stdout: string): number {
  const events = stdout
    .trim()
    .split("\n")
    .map((line) => JSON.parse(line) as { readonly type: string; readonly leftMs?: number });
  return Math.max(0, ...events.map(({ type, leftMs = 0 }) => (type === "settling" ? leftMs / 1_000 : 0)));
}

/** Kubernetes' own migrator, its client limits lifted, warm; its start is no part of what it takes. */
export const IN_TREE: Contender = {
  name: "in-tree, limits lifted",
  async run({ cluster, stale, route, signal }) {
    const extraArgs = ["--kube-api-qps=100000", "--kube-api-burst=100000", `--kubeconfig=${route.kubeconfig}`];
    const manager = await startInTree(cluster, { extraArgs });
    try {
      await migrateInTree(cluster, stale.kind, signal);
      await cluster.api.delete(MIGRATIONS, { name: stale.kind.plural });
      await stale.renew(signal);
      const before = cpuSecondsOf(manager.pid);
      const { seconds, outcome } = await migrateInTree(cluster, stale.kind, signal);
      if (outcome !== "Succeeded") throw new Error(`Cannot count this run: it ${outcome}`);
      return {
        seconds,
        own: { cpuSeconds: cpuSecondsOf(manager.pid) - before, peakMegabytes: peakMegabytesOf(manager.pid) },
      };
    } finally {
      await manager.kill();
      await cluster.api.delete(MIGRATIONS, { name: stale.kind.plural });
    }
  },
};

/** kube-storage-version-migrator. @param limits its flags */
export function peer(name: string, source: string, limits: readonly string[]): Contender {
  return { name, run: (ring) => migrateByPeer(ring, source, limits) };
}

/** As the Kubernetes documentation has it. */
export const KUBECTL_REPLACE: Contender = {
  name: "kubectl get | kubectl replace",
  async run({ stale: { kind }, route, signal }) {
    const { kubectl } = await ensureBinaries(["kubectl"]);
    const script = `set -e; "$0" get ${kind.plural}.${GROUP} --all-namespaces -o json | "$0" replace -f - > /dev/null`;
    const startedAt = performance.now();
    const env = { ...process.env, KUBECONFIG: route.kubeconfig };
    const child = spawn("sh", ["-c", script, kubectl], { env, detached: true, stdio: ["ignore", "ignore", "pipe"] });
    endWithThisProcess(child);
    const kill = (): void => void child.kill("SIGKILL");
    signal.addEventListener("abort", kill, { once: true });
    const [stderr, [code]] = await Promise.all([text(child.stderr), once(child, "close")]);
    signal.removeEventListener("abort", kill);
    if (code !== 0) throw new Error(`Cannot count this run: kubectl ended with ${String(code)}: ${stderr}`);
    return { seconds: (performance.now() - startedAt) / 1_000 };
  },
};

/** The limit: nothing but the writes. */
export function bareLoop(loop: Pick<BareLoop, "inFlight" | "write" | "answer">): Contender {
  return {
    name: `bare loop: ${loop.inFlight} in flight, ${loop.write}, ${loop.answer}`,
    async run({ stale, route, signal }) {
      const { kind } = stale;
      const target = {
        kubeconfig: route.kubeconfig,
        group: GROUP,
        version: "v1",
        plural: kind.plural,
        kind: kind.kind,
      };
      const child = HelperProcess.start("bare-loop.ts", [JSON.stringify({ ...target, ...loop } satisfies BareLoop)]);
      const kill = (): void => child.kill();
      signal.addEventListener("abort", kill, { once: true });
      const output = await child.output();
      signal.removeEventListener("abort", kill);
      return JSON.parse(output) as Took;
    },
  };
}
