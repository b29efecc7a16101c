import { setTimeout as delay } from "node:timers/promises";
import { CRDS, MERGE_PATCH, MIGRATIONS } from "../test/api-client.ts";
import type { Cluster } from "../test/integration/cluster.ts";
import { migrationName, newMigration, scaleResource } from "./scale-objects.ts";

/** What other clients do to a cluster. */
export interface LoadOptions {
  /** Times a second that one migration is created, one ends, and one CRD changes. */
  readonly perSecond: number;
  readonly seconds: number;
  readonly crds: number;
  /** Unique to this load. */
  readonly name: string;
  readonly signal: AbortSignal;
}

/** Creates and ends migrations and changes CRDs at a fixed rate. @returns how many writes the API server took */
export async function loadCluster(cluster: Cluster, options: LoadOptions): Promise<number> {
  const { perSecond, seconds, signal } = options;
  const startedAt = performance.now();
  const writes: Promise<number>[] = [];
  for (let turn = 0; turn < perSecond * seconds; turn++) {
    const waitMs = startedAt + (turn * 1_000) / perSecond - performance.now();
    if (waitMs > 0) await delay(waitMs, undefined, { signal });
    writes.push(oneTurn(cluster, turn, options));
  }
  return (await Promise.all(writes)).reduce((sum, written) => sum + written, 0);
}

async function oneTurn({ api }: Cluster, turn: number, { crds, name }: LoadOptions): Promise<number> {
  const { group, resource } = scaleResource((turn * 7) % crds);
  const metadata = { annotations: { "scale.example.com/turn": String(turn) } };
  const condition = { type: "Succeeded", status: "True", lastUpdateTime: new Date().toISOString() };
  const status = { conditions: [condition] };
  const done = await Promise.allSettled([
    api.create(MIGRATIONS, newMigration(`${name}-${turn}`, (turn * 13) % crds)),
    // From the front of the queue.
    api.patch(
      MIGRATIONS,
      { name: migrationName(turn) },
      { type: MERGE_PATCH, body: { status } },
      { subresource: "status" },
    ),
    api.patch(CRDS, { name: `${resource}.${group}` }, { type: MERGE_PATCH, body: { metadata } }),
  ]);
  return done.filter(({ status: outcome }) => outcome === "fulfilled").length;
}
