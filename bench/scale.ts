// What thousands of CRDs and migrations cost ksvm controller: node bench/scale.ts [--crds 5000] [--migrations 20000] [-o json]
import { setTimeout as delay } from "node:timers/promises";
import { parseArgs } from "node:util";

import { TRIGGER_ANNOTATION } from "../src/api/names.ts";
import { MIGRATIONS } from "../test/api-client.ts";
import { bundle } from "../tools/build.ts";
import type { Cluster } from "../test/integration/cluster.ts";
import { installSystem } from "../test/integration/migrations.ts";
import { TestKind } from "../test/integration/crd-fixture.ts";
import { freePort, ONLY_CUSTOM, type Replica, spawnController } from "../test/processes/replica.ts";
import { PhaseMeter, type Phase } from "./phase-meter.ts";
import { peakMegabytesOf } from "./process-usage.ts";
import { runScript, say } from "./run-script.ts";
import { loadCluster } from "./scale-load.ts";
import { addCrds, addFirstMigration, addMigrations } from "./scale-objects.ts";
import { withCluster } from "./with-cluster.ts";

/** The slot is held by one migration that waits for its settle time, so that the queue stays as long as it is. */
const SLOT_HELD = ["--settle=3h"] as const;
/** The name of that migration. */
const HELD = "held";
const LOAD_PER_SECOND = 5;

await runScript(async (interrupted) => {
  const { values } = parseArgs({
    options: {
      crds: { type: "string", default: "5000" },
      migrations: { type: "string", default: "20000" },
      seconds: { type: "string", default: "60" },
      // Several are measured one after the other, on the same cluster.
      program: { type: "string", multiple: true },
      output: { type: "string", short: "o", default: "table" },
    },
  });
  const [crds, migrations, seconds] = [Number(values.crds), Number(values.migrations), Number(values.seconds)];
  const programs = values.program ?? [await bundle()];
  const measured: { readonly program: string; readonly phases: readonly Phase[] }[] = [];
  await withCluster({ signal: interrupted }, async (cluster, signal) => {
    const held = await prepare(cluster, { crds, migrations });
    for (const program of programs) {
      say(program);
      measured.push({
        program,
        phases: await measureProgram(cluster, { program, held, crds, migrations, seconds, signal }),
      });
      console.log(values.output === "json" ? JSON.stringify(measured.at(-1)) : render(measured.at(-1)?.phases ?? []));
    }
  });
});

interface Measurement {
  readonly program: string;
  /** The plural of the resource whose migration holds the only slot. */
  readonly held: string;
  readonly crds: number;
  readonly migrations: number;
  readonly seconds: number;
  readonly signal: AbortSignal;
}

async function measureProgram(cluster: Cluster, measurement: Measurement): Promise<readonly Phase[]> {
  const { crds, held, migrations, program, seconds, signal } = measurement;
  const ms = seconds * 1_000;
  await addFirstMigration(cluster, HELD, { group: "example.com", resource: held });
  const replica = await startReplica(cluster, program, signal);
  const meter = new PhaseMeter(cluster, replica);
  const load = { name: `load${replica.pid}`, perSecond: LOAD_PER_SECOND, seconds, crds, signal };
  const phases = [
    await meter.measure("start", () => meter.untilQuiet(migrations, signal)),
    await meter.measure("idle", () => delay(ms, undefined, { signal })),
    await meter.measure("busy", () => loadCluster(cluster, load)),
  ];
  await cluster.api.delete(MIGRATIONS, { name: HELD });
  phases.push(await meter.measure("working off", () => delay(ms, undefined, { signal })));
  replica.kill("SIGTERM");
  await Promise.race([replica.ended, delay(30_000)]);
  replica.kill("SIGKILL");
  return phases;
}

/** @returns the plural of the resource whose migration is going to hold the only slot */
async function prepare(
  cluster: Cluster,
  { crds, migrations }: { readonly crds: number; readonly migrations: number },
): Promise<string> {
  await installSystem(cluster);
  const kind = new TestKind("held");
  await cluster.createStale(kind, 3, { annotations: { [TRIGGER_ANNOTATION]: "off" } });
  let startedAt = performance.now();
  const peak = (): string => `${peakMegabytesOf(cluster.controlPlane.apiservers[0]?.pid).toFixed(0)} MiB`;
  await addCrds(cluster, crds);
  say(`${crds} CRDs are served after ${secondsSince(startedAt)} s; the API server's peak is ${peak()}`);
  startedAt = performance.now();
  await addMigrations(cluster, migrations, crds);
  say(`${migrations} migrations are there after ${secondsSince(startedAt)} s; the API server's peak is ${peak()}`);
  return kind.plural;
}

async function startReplica(cluster: Cluster, program: string, signal: AbortSignal): Promise<Replica> {
  const teardown = (end: () => unknown): void => signal.addEventListener("abort", () => void end(), { once: true });
  const webhookPort = await freePort();
  const flags = [...ONLY_CUSTOM, ...SLOT_HELD];
  return spawnController({ teardown }, cluster, { main: program, webhookPort, flags });
}

function secondsSince(startedAt: number): string {
  return ((performance.now() - startedAt) / 1_000).toFixed(0);
}

function render(phases: readonly Phase[]): string {
  const rows = phases.map((one) => {
    const { p50, p99, max } = one.delayMs;
    const requests = Object.entries(one.requestsPerSecond).map(([verb, rate]) => `${verb} ${rate.toFixed(1)}`);
    const perEvent = one.events === 0 ? "-" : ((one.cpuSeconds * 1_000) / one.events).toFixed(1);
    return (
      `| ${one.phase} | ${one.seconds.toFixed(0)} | ${one.cpuSeconds.toFixed(1)} | ${one.events} | ${perEvent} ` +
      `| ${one.peakMib.toFixed(0)} | ${p50.toFixed(0)} / ${p99.toFixed(0)} / ${max.toFixed(0)} ` +
      `| ${requests.join(", ")} | ${one.ended} |`
    );
  });
  return [
    "| phase | seconds | CPU s | events | CPU ms per event | peak MiB | event loop delay p50 / p99 / max, ms | requests per second | migrations ended |",
    "| --- | --- | --- | --- | --- | --- | --- | --- | --- |",
    ...rows,
  ].join("\n");
}
