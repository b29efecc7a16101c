import type { Random } from "../../chaos/random.ts";
import { spread } from "../world/random-choices.ts";
import { sort } from "./action-sort.ts";

/** etcd forgets all older revisions. */
export const compact = sort({
  name: "compact",
  choose: () => ({}),
  text: () => "etcd forgets all older revisions",
  play({ cluster: { etcd } }) {
    if (etcd.revision > etcd.compactedRevision) etcd.compact(etcd.revision);
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
  text: ({ ageMs }, names) => `etcd is restored from a backup that is ${names.time(ageMs)} old`,
  play(world, { ageMs }) {
    const snapshot = world.snapshotBefore(ageMs);
    if (snapshot) world.cluster.restore(snapshot);
  },
});
