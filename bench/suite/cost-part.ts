import { mkdtempSync, readdirSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { TestKind } from "../../test/integration/crd-fixture.ts";
import type { Cluster } from "../../test/integration/cluster.ts";
import { runKsvm } from "../run-ksvm.ts";
import { say } from "../run-script.ts";
import { ScrapedMetrics } from "../scraped-metrics.ts";
import { StaleObjects } from "../stale-objects.ts";
import { withCluster } from "../with-cluster.ts";
import { type Part, type PartContext, type Row, rounded } from "./arena.ts";
import { type CpuProfile, ownTimes } from "./cpu-profile.ts";
import { type Route, withDistance } from "./route.ts";

const PROFILED = 6_000;
const FUNCTIONS = 15;
const SETTLED_MS = 3_000;

export const COST: Part = {
  name: "cost",
  title: "What a run itself costs",
  about: `Three objects, at a round trip of 0, 1 and 50 ms: "settled s" is the whole process, less the wait for writes that may still be under way. Below, the functions in which a run of ${PROFILED.toLocaleString("en")} objects spends most CPU, by Node's profiler.`,
  async run(context) {
    const rows: Row[] = [];
    await withCluster({ signal: context.signal }, async (cluster) => {
      for (const roundTripMs of [0, 1, 50]) {
        await withDistance(cluster, roundTripMs, async (route) => {
          for (let round = 0; round < 3; round++) rows.push(await threeObjects(cluster, route, roundTripMs, context));
        });
      }
      rows.push(...(await profile(cluster, context)));
    });
    return rows;
  },
};

async function threeObjects(
  cluster: Cluster,
  route: Route,
  roundTripMs: number,
  { program, signal }: PartContext,
): Promise<Row> {
  const kind = new TestKind("few");
  await cluster.createStale(kind, 3);
  await sleep(SETTLED_MS, undefined, { signal });
  const requests = async (): Promise<number> => {
    const { body } = await cluster.controlPlane.request("/metrics");
    return new ScrapedMetrics(String(body)).sum("apiserver_request_total", ({ verb }) => verb !== "WATCH");
  };
  const before = await requests();
  const args = ["migrate", kind.name, "--unsafe-settle", "1s", "--apiserver-endpoints", route.url, "-o", "json"];
  const run = await runKsvm(args, { kubeconfig: route.kubeconfig, signal, program });
  if (run.code !== 0 || run.usage === undefined) throw new Error(`Cannot count this run: ${run.code}: ${run.stderr}`);
  const made = (await requests()) - before;
  const events = run.stdout
    .trim()
    .split("\n")
    .map((line) => JSON.parse(line) as { readonly type: string; readonly leftMs?: number });
  const settleMs = Math.max(0, ...events.map(({ type, leftMs = 0 }) => (type === "settling" ? leftMs : 0)));
  const row = {
    name: `three objects, ${roundTripMs} ms`,
    seconds: rounded(run.seconds, 2),
    "settled s": rounded(run.seconds - settleMs / 1_000, 2),
    requests: made,
    "CPU s": rounded(run.usage.cpuSeconds, 2),
    "peak MiB": Math.round(run.usage.peakMegabytes),
  };
  say(JSON.stringify(row));
  return row;
}

async function profile(cluster: Cluster, { program, signal }: PartContext): Promise<readonly Row[]> {
  const stale = await StaleObjects.create(cluster, { objects: PROFILED, size: 2_000 });
  await stale.renew(signal);
  const dir = mkdtempSync(join(tmpdir(), "ksvm-profile-"));
  try {
    const nodeFlags = ["--cpu-prof", `--cpu-prof-dir=${dir}`];
    const args = ["migrate", stale.kind.name, "--unsafe-settle", "1s", "-o", "json"];
    const run = await runKsvm(args, { kubeconfig: cluster.kubeconfig, signal, program, nodeFlags });
    if (run.code !== 0) throw new Error(`Cannot count this run: ${run.code}: ${run.stderr}`);
    const [file] = readdirSync(dir);
    const times = ownTimes(JSON.parse(readFileSync(join(dir, file ?? ""), "utf8")) as CpuProfile);
    const all = times.reduce((sum, { ms }) => sum + ms, 0);
    return [
      { name: "all functions", "ms/object": rounded(all / PROFILED, 3) },
      ...times.slice(0, FUNCTIONS).map(({ name, ms }) => ({ name, "ms/object": rounded(ms / PROFILED, 3) })),
    ];
  } finally {
    rmSync(dir, { recursive: true });
  }
}
