// How much memory ksvm needs for large objects, and for many: node bench/memory.ts [--only <case>] [-o json]
import { parseArgs } from "node:util";

import { storedVersionsOf } from "../test/crd.ts";
import type { NewObject } from "../test/api-client.ts";
import { bundle } from "../tools/build.ts";
import { type Cluster, eventually } from "../test/integration/cluster.ts";
import { installSystem } from "../test/integration/migrations.ts";
import { TestKind } from "../test/integration/crd-fixture.ts";
import { freePort, ONLY_CUSTOM, spawnController, untilReady } from "../test/processes/replica.ts";
import { peakMegabytesOf } from "./process-usage.ts";
import { runKsvm } from "./run-ksvm.ts";
import { runScript, say } from "./run-script.ts";
import { withCluster } from "./with-cluster.ts";

/** Objects of one shape. */
interface MemoryCase {
  readonly name: string;
  readonly count: number;
  /** How many are created at once, so that large ones do not fill this process. */
  readonly atOnce: number;
  /** What is added to an object's metadata and spec. */
  readonly annotations?: Readonly<Record<string, string>>;
  readonly spec?: object;
}

/** Fields of their own, each of which has an entry in managedFields. */
function manyFields(count: number): object {
  return Object.fromEntries(Array.from({ length: count }, (_, index) => [`field${index}`, index]));
}

const CASES: readonly MemoryCase[] = [
  { name: "500 of 200 KB, annotations", count: 500, atOnce: 8, annotations: { text: "x".repeat(200_000) } },
  {
    // An API server takes 256 KiB of annotations; managedFields are the rest of what a metadata-only answer carries.
    name: "300 of 1 MB, a third of it metadata",
    count: 300,
    atOnce: 4,
    annotations: { text: "x".repeat(250_000) },
    spec: { ...manyFields(5_000), text: "x".repeat(570_000) },
  },
  { name: "100,000 small", count: 100_000, atOnce: 32 },
];

/** The limits that the design sets, in MiB. */
const LIMIT_MIGRATE = 160;
const LIMIT_CONTROLLER = 200;
const PRUNED_TIMEOUT_MS = 3_600_000;

interface Measured {
  readonly case: string;
  readonly migrateMib: number;
  readonly migrateSeconds: number;
  readonly controllerMib: number;
  readonly controllerSeconds: number;
}

await runScript(async (interrupted) => {
  const { values } = parseArgs({
    options: { only: { type: "string" }, output: { type: "string", short: "o", default: "table" } },
  });
  const cases = CASES.filter(({ name }) => name.startsWith(values.only ?? ""));
  const program = await bundle();
  const measured: Measured[] = [];
  for (const one of cases) {
    // A cluster for each, so that no case pays for the objects of another.
    await withCluster({ signal: interrupted }, async (cluster, signal) => {
      measured.push(await measure(cluster, one, { program, signal }));
    });
  }
  console.log(values.output === "json" ? JSON.stringify(measured, undefined, 2) : render(measured));
});

async function measure(
  cluster: Cluster,
  one: MemoryCase,
  { program, signal }: { readonly program: string; readonly signal: AbortSignal },
): Promise<Measured> {
  const kind = new TestKind("memory");
  say(`${one.name}: creating them`);
  await installSystem(cluster);
  await cluster.createCrd(kind, { storage: "v1alpha1" });
  await create(cluster, kind, one);
  await cluster.setVersions(kind, { storage: "v1" });
  say(`${one.name}: ksvm migrate`);
  const args = ["migrate", kind.name, "--unsafe-settle", "1s", "-o", "json"];
  const run = await runKsvm(args, { kubeconfig: cluster.kubeconfig, signal, program });
  if (run.code !== 0 || run.usage === undefined) throw new Error(`Cannot count this run: ${run.code}: ${run.stderr}`);
  await verify(cluster, kind, { v1: one.count });
  say(`${one.name}: ${run.usage.peakMegabytes.toFixed(0)} MiB in ${run.seconds.toFixed(0)} s; ksvm controller`);
  const controller = await measureController(cluster, kind, program);
  await verify(cluster, kind, { v1alpha1: one.count });
  say(`${one.name}: ${controller.mib.toFixed(0)} MiB in ${controller.seconds.toFixed(0)} s`);
  return {
    case: one.name,
    migrateMib: run.usage.peakMegabytes,
    migrateSeconds: run.seconds,
    controllerMib: controller.mib,
    controllerSeconds: controller.seconds,
  };
}

async function create(
  cluster: Cluster,
  kind: TestKind,
  { count, atOnce, annotations, spec }: MemoryCase,
): Promise<void> {
  const resource = kind.resource("v1alpha1");
  let next = 0;
  const worker = async (): Promise<void> => {
    while (next < count) {
      const object = kind.object(`m${next++}`, "v1alpha1");
      const metadata = { ...object.metadata, ...(annotations === undefined ? {} : { annotations }) };
      const larger: NewObject = { ...object, metadata, ...(spec === undefined ? {} : { spec }) };
      await cluster.api.create(resource, larger);
    }
  };
  await Promise.all(Array.from({ length: atOnce }, worker));
}

/** The installed system: its trigger finds the CRD, and its migrator migrates it. */
async function measureController(cluster: Cluster, kind: TestKind, program: string) {
  const teardowns: (() => unknown)[] = [];
  try {
    const replica = await spawnController({ teardown: (end: () => unknown) => void teardowns.push(end) }, cluster, {
      main: program,
      webhookPort: await freePort(),
      flags: ONLY_CUSTOM,
    });
    await untilReady(replica);
    const startedAt = performance.now();
    await cluster.setVersions(kind, { storage: "v1alpha1" });
    const isPruned = async (): Promise<boolean> => storedVersionsOf(await cluster.crd(kind)).join() === "v1alpha1";
    await eventually(isPruned, `${kind.name} is pruned:\n${replica.log().slice(-2_000)}`, PRUNED_TIMEOUT_MS, 1_000);
    return { mib: peakMegabytesOf(replica.pid), seconds: (performance.now() - startedAt) / 1_000 };
  } finally {
    for (const end of teardowns) await end();
  }
}

async function verify(cluster: Cluster, kind: TestKind, expected: Readonly<Record<string, number>>): Promise<void> {
  const stored = await cluster.storedAs(kind);
  if (JSON.stringify(stored) !== JSON.stringify(expected)) {
    throw new Error(`Cannot count this run: etcd holds ${JSON.stringify(stored)}`);
  }
}

function render(measured: readonly Measured[]): string {
  const rows = measured.map(
    (one) =>
      `| ${one.case} | ${one.migrateMib.toFixed(0)} MiB | ${one.migrateSeconds.toFixed(0)} s ` +
      `| ${one.controllerMib.toFixed(0)} MiB | ${one.controllerSeconds.toFixed(0)} s |`,
  );
  return [
    `| objects | \`ksvm migrate\` (limit ${LIMIT_MIGRATE} MiB) | in | \`ksvm controller\` (limit ${LIMIT_CONTROLLER} MiB) | in |`,
    "| --- | --- | --- | --- | --- |",
    ...rows,
  ].join("\n");
}
