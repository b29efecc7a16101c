import { type Random, randomFrom } from "../../chaos/random.ts";
import type { Lags } from "../world/api-server-node.ts";
import { jumpClock, seemsEnded } from "../world/false-expiry.ts";
import { oneIn, oneOf, spread } from "../world/random-choices.ts";
import { type Limits, sort } from "./action-sort.ts";
import { jumpOf, lastingOf, serverOf } from "./choices.ts";

/** For how long one that joins holds its requests, in milliseconds. */
const JOINED_SLOW_MS = 120_000;
/** What an API server that is late follows CRDs after at the latest, in milliseconds. */
export const LATEST_MS = 400_000;

/** An API server crashes and is started again, or stands still and goes on. */
export const stopServer = sort<{
  readonly server: number;
  readonly how: "crash" | "pause" | "suspend";
  readonly ms: number;
}>({
  name: "stopServer",
  weight: 2,
  choose: (random, limits) => ({
    server: serverOf(random, limits),
    how: oneOf(random, ["crash", "pause", "suspend"]),
    ms: lastingOf(random),
  }),
  play(world, { server, how, ms }) {
    const { cluster } = world;
    const node = cluster.nodeAt(server);
    if (how === "crash") cluster.crash(server, ms);
    else if (node !== undefined && !seemsEnded(world, node)) cluster.standStill(server, ms, how);
  },
});

/** The clock of an API server jumps. */
export const jumpServer = sort<{ readonly server: number; readonly byMs: number }>({
  name: "jumpServer",
  choose: (random, limits) => ({ server: serverOf(random, limits), byMs: jumpOf(random) }),
  play: (world, { server, byMs }) => jumpClock(world, world.cluster.nodeAt(server)?.process, byMs),
});

/** What an API server follows late, and by how much. */
interface Lateness {
  readonly of: keyof Lags;
  readonly byMs: number;
}

function latenessOf(random: Random): Lateness {
  const of = oneOf(random, ["crds", "handlers", "handlers", "discovery", "admission", "cache"] as const);
  return { of, byMs: Math.round(spread(random, 10, of === "crds" ? LATEST_MS : 60_000)) };
}

/**
 * An API server follows etcd late from now on. Its handlers are behind its discovery by less than the settle time, and both are behind
 * by any time.
 */
export const lag = sort<Lateness & { readonly server: number }>({
  name: "lag",
  weight: 4,
  choose(random, limits) {
    const late = latenessOf(random);
    return { server: serverOf(random, limits), ...late };
  },
  play({ cluster }, { server, of, byMs }) {
    const node = cluster.nodeAt(server);
    if (node) node.lags[of] = byMs;
  },
});

/**
 * An API server cannot fill its watch cache of CRDs for some time, as where it cannot read one of them from etcd. It follows none of their changes, and
 * etcd answers in its place. No seed has that.
 */
export const unfill = sort<{ readonly server: number; readonly ms: number }>({
  name: "unfill",
  suits: () => false,
  choose: (random, limits) => ({ server: serverOf(random, limits), ms: lastingOf(random) }),
  async play(world, { server, ms }) {
    const node = world.cluster.nodeAt(server);
    if (node === undefined) return;
    const before = node.lags.crds;
    node.api.fillCrds(false);
    node.lags.crds = ms;
    await world.lasting(ms);
    node.lags.crds = before;
    node.api.fillCrds(true);
  },
});

/** An API server holds its requests for up to `holdMs`, for some time. */
export const slow = sort<{ readonly server: number; readonly ms: number; readonly holdMs: number }>({
  name: "slow",
  weight: 3,
  choose: (random, limits) => ({
    server: serverOf(random, limits),
    ms: lastingOf(random),
    holdMs: Math.round(spread(random, 10, 60_000)),
  }),
  play: ({ cluster }, { server, ms, holdMs }) => cluster.nodeAt(server)?.slow(ms, holdMs),
});

/** So that how late those are that join changes nothing of what else a seed stands for. */
const JOIN_SALT = 0x101e5;
const joins = new WeakMap<Limits, Random>();

/** An API server joins, which knows everything as it is when it starts. It may follow what comes later late, and hold its requests. */
export const joinServer = sort<Partial<Lateness> & { readonly holdMs?: number }>({
  name: "joinServer",
  choose(_, limits) {
    const random = joins.get(limits) ?? randomFrom(limits.seed ^ JOIN_SALT);
    joins.set(limits, random);
    return {
      ...(oneIn(random, 2) ? latenessOf(random) : {}),
      ...(oneIn(random, 4) ? { holdMs: Math.round(spread(random, 10, 60_000)) } : {}),
    };
  },
  play({ cluster }, { of, byMs, holdMs }) {
    const node = cluster.join();
    if (of !== undefined && byMs !== undefined && node !== undefined) node.lags[of] = byMs;
    if (holdMs !== undefined) node?.slow(JOINED_SLOW_MS, holdMs);
  },
});
