import { setTimeout as sleep } from "node:timers/promises";
import type { Cluster } from "../../test/integration/cluster.ts";
import { MIGRATIONS, migrateInTree, startInTree } from "../in-tree.ts";
import { runKsvm } from "../run-ksvm.ts";
import { ScrapedMetrics } from "../scraped-metrics.ts";
import { say } from "../run-script.ts";
import { withCluster } from "../with-cluster.ts";
import { Arena, type Part, type PartContext, type Row, rounded } from "./arena.ts";
import { KUBECTL_REPLACE } from "./contenders.ts";

const OBJECTS = 4_000;
const POLL_MS = 50;
const WRITES = new Set(["POST", "PUT", "PATCH", "APPLY", "DELETE"]);

export const RERUN: Part = {
  name: "rerun",
  title: "Again",
  about: `Requests for ${OBJECTS.toLocaleString("en")} objects of 2 KB: of a run that is killed (kill -9) when half of them are rewritten, together with the one that goes on; of a run whose continue token the API server no longer takes, because etcd was compacted halfway; and of a second run, when nothing is left to do. "Writes" are those of the objects.`,
  async run(context) {
    const rows: Row[] = [];
    const add = (row: Row): void => {
      rows.push(row);
      say(JSON.stringify(row));
    };
    await withCluster({ signal: context.signal }, async (cluster) => {
      const arena = await Arena.create(cluster, OBJECTS, context);
      await arena.stale.renew(context.signal);
      add(await counted(arena, "ksvm: killed halfway, and run again", () => killed(arena, context)));
      add(await counted(arena, "ksvm: run again when all is done", () => migrate(arena, context)));
      await arena.stale.renew(context.signal);
      add(await counted(arena, "ksvm: etcd compacted halfway", () => compacted(arena, context)));
      await arena.stale.renew(context.signal);
      add(await counted(arena, "kubectl get | kubectl replace", () => KUBECTL_REPLACE.run(arena.ring())));
      add(await counted(arena, "kubectl get | kubectl replace: again", () => KUBECTL_REPLACE.run(arena.ring())));
      await arena.stale.renew(context.signal);
      add(await counted(arena, "in-tree: killed halfway, and started again", () => killedInTree(arena, context)));
      await cluster.api.delete(MIGRATIONS, { name: arena.stale.kind.plural });
      add(await counted(arena, "in-tree: a second migration", () => inTree(arena, context)));
    });
    return rows;
  },
};

/** How many requests the API server got during the work. */
async function counted({ cluster, stale }: Arena, name: string, work: () => Promise<unknown>): Promise<Row> {
  const before = await scrape(cluster);
  const startedAt = performance.now();
  await work();
  const seconds = (performance.now() - startedAt) / 1_000;
  const after = await scrape(cluster);
  const requests = (matches: (labels: Readonly<Record<string, string>>) => boolean): number =>
    after.sum("apiserver_request_total", matches) - before.sum("apiserver_request_total", matches);
  const isOfObjects = ({ resource }: Readonly<Record<string, string>>): boolean => resource === stale.kind.plural;
  const writes = requests((labels) => isOfObjects(labels) && WRITES.has(labels["verb"] ?? ""));
  const changed = requests(
    (labels) => isOfObjects(labels) && WRITES.has(labels["verb"] ?? "") && labels["code"] === "200",
  );
  return {
    name,
    seconds: rounded(seconds, 1),
    writes,
    "accepted writes": changed,
    "reads and lists": requests(
      (labels) => isOfObjects(labels) && !WRITES.has(labels["verb"] ?? "") && labels["verb"] !== "WATCH",
    ),
    "all in the new version": await cluster.storedAs(stale.kind).then((stored) => Object.keys(stored).length === 1),
  };
}

async function scrape({ controlPlane }: Cluster): Promise<ScrapedMetrics> {
  const { body } = await controlPlane.request("/metrics");
  return new ScrapedMetrics(typeof body === "string" ? body : JSON.stringify(body));
}

function migrate({ cluster, stale }: Arena, { program, signal }: PartContext): Promise<unknown> {
  return runKsvm(["migrate", stale.kind.name, "--unsafe-settle", "1s", "-o", "json"], {
    kubeconfig: cluster.kubeconfig,
    signal,
    program,
  });
}

async function killed(arena: Arena, context: PartContext): Promise<void> {
  const end = new AbortController();
  const run = runKsvm(["migrate", arena.stale.kind.name, "--unsafe-settle", "1s", "-o", "json"], {
    kubeconfig: arena.cluster.kubeconfig,
    program: context.program,
    signal: AbortSignal.any([context.signal, end.signal]),
  });
  await half(arena, context);
  end.abort();
  await run;
  await migrate(arena, context);
}

async function compacted(arena: Arena, context: PartContext): Promise<void> {
  const run = migrate(arena, context);
  await half(arena, context);
  const { stored } = arena.cluster.controlPlane;
  await stored.compact(await stored.currentRevision());
  await run;
}

/** Waits until half of the objects are rewritten. */
async function half({ cluster, stale }: Arena, { signal }: PartContext): Promise<void> {
  const first = await cluster.storedAs(stale.kind);
  const [old = ""] = Object.keys(first);
  for (;;) {
    const stored = await cluster.storedAs(stale.kind);
    if ((stored[old] ?? 0) <= OBJECTS / 2) return;
    await sleep(POLL_MS, undefined, { signal });
  }
}

async function inTree({ cluster, stale }: Arena, { signal }: PartContext): Promise<void> {
  const manager = await startInTree(cluster, { extraArgs: ["--kube-api-qps=100000", "--kube-api-burst=100000"] });
  try {
    await migrateInTree(cluster, stale.kind, signal);
  } finally {
    await manager.kill();
  }
}

async function killedInTree(arena: Arena, context: PartContext): Promise<void> {
  const { cluster, stale } = arena;
  const manager = await startInTree(cluster, { extraArgs: ["--kube-api-qps=100000", "--kube-api-burst=100000"] });
  try {
    const run = migrateInTree(cluster, stale.kind, context.signal);
    await half(arena, context);
    await manager.kill();
    manager.start();
    await run;
  } finally {
    await manager.kill();
  }
}
