import { setTimeout as delay } from "node:timers/promises";
import { installSystem } from "../../test/integration/migrations.ts";
import { freePort, spawnController } from "../../test/processes/replica.ts";
import { PhaseMeter } from "../phase-meter.ts";
import { addCrds } from "../scale-objects.ts";
import { withCluster } from "../with-cluster.ts";
import { type PartContext, type Row, rounded } from "./arena.ts";

const IDLE_MS = 60_000;

/** What a controller costs that has nothing to do. */
export async function idleController(crds: number, { program, signal: interrupted }: PartContext): Promise<Row> {
  let row: Row = {};
  await withCluster({ signal: interrupted }, async (cluster, signal) => {
    await installSystem(cluster);
    await addCrds(cluster, crds);
    const teardown = (end: () => unknown): void => signal.addEventListener("abort", () => void end(), { once: true });
    const webhookPort = await freePort();
    const replica = await spawnController({ teardown }, cluster, { main: program, webhookPort, flags: [] });
    const meter = new PhaseMeter(cluster, replica);
    await meter.measure("start", () => meter.untilQuiet(0, signal));
    const idle = await meter.measure("idle", () => delay(IDLE_MS, undefined, { signal }));
    replica.kill("SIGTERM");
    await Promise.race([replica.ended, delay(30_000)]);
    replica.kill("SIGKILL");
    const requests = Object.values(idle.requestsPerSecond).reduce((sum, rate) => sum + rate, 0);
    row = {
      name: `idle controller, ${crds.toLocaleString("en")} CRDs`,
      seconds: rounded(idle.seconds, 1),
      "peak MiB": Math.round(idle.peakMib),
      "CPU s": rounded(idle.cpuSeconds, 2),
      "of a core, %": rounded((idle.cpuSeconds / idle.seconds) * 100, 2),
      "requests/s": rounded(requests, 1),
    };
  });
  return row;
}
