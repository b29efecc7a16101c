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

/** etcd is restored from a backup, as administrators do it: with all API servers down. */
export const restore = sort<{ readonly ageMs: number }>({
  name: "restore",
  choose: (random) => ({ ageMs: Math.round(spread(random, 1_000, 300_000)) }),
  text: ({ ageMs }, names) => `etcd is restored from a backup that is ${names.time(ageMs)} old`,
  play(world, { ageMs }) {
    const snapshot = world.snapshotBefore(ageMs);
    if (snapshot) world.cluster.restore(snapshot);
  },
});
