import { type Random, randomFrom } from "../../chaos/random.ts";
import { oneIn, spread } from "../world/random-choices.ts";
import type { EtcdSnapshot } from "../model/etcd.ts";
import type { RestoreOptions } from "../world/sim-cluster.ts";
import type { World } from "../world/world.ts";
import { type Limits, sort } from "./action-sort.ts";
import { serverOf } from "./choices.ts";

/** So that which API server forgets events changes nothing of what else a seed stands for. */
const WINDOW_SALT = 0x3d0e5;
const windows = new WeakMap<Limits, Random>();

/**
 * etcd forgets all older revisions. In half of the cases the window of one API server's watch cache moves to now as well, and its watches end: those
 * that are opened again from before that get 410.
 */
export const compact = sort<{ readonly forgetful?: number }>({
  name: "compact",
  choose(_, limits) {
    const random = windows.get(limits) ?? randomFrom(limits.seed ^ WINDOW_SALT);
    windows.set(limits, random);
    return oneIn(random, 2) ? { forgetful: serverOf(random, limits) } : {};
  },
  play({ cluster }, { forgetful }) {
    const { etcd } = cluster;
    if (etcd.revision > etcd.compactedRevision) etcd.compact(etcd.revision);
    const node = forgetful === undefined ? undefined : cluster.nodeAt(forgetful);
    if (node !== undefined && !node.process.isPaused) node.api.forgetEvents();
  },
});

/** The youngest backup: a run that writes has renewed its Lease since, in ten seconds at the latest, which shows that it is back in time. */
const MIN_AGE_MS = 15_000;

/** How old a backup is that etcd is restored from, in milliseconds. */
export function backupAgeOf(random: Random): number {
  return Math.round(spread(random, MIN_AGE_MS, 300_000));
}

/** etcd is restored from a backup, as administrators do it: with all API servers down. */
export const restore = sort<{ readonly ageMs: number }>({
  name: "restore",
  choose: (random) => ({ ageMs: backupAgeOf(random) }),
  play(world, { ageMs }) {
    const snapshot = world.snapshotBefore(ageMs);
    if (snapshot) world.cluster.restore(snapshot);
  },
});

const backups = new WeakMap<World, EtcdSnapshot>();

/** For {@link restoreBackup}. No seed has that. */
export const backUp = sort<object>({
  name: "backUp",
  suits: () => false,
  choose: () => ({}),
  play(world) {
    backups.set(world, world.cluster.etcd.snapshot());
  },
});

/** No seed has that. */
export const restoreBackup = sort<RestoreOptions>({
  name: "restoreBackup",
  suits: () => false,
  choose: () => ({}),
  play(world, ways) {
    const backup = backups.get(world);
    if (backup) world.cluster.restore(backup, ways);
  },
});
