import type { Random } from "../../chaos/random.ts";
import type { Lags } from "../world/api-server.ts";
import { encryptionOf, releaseOf } from "../world/kinds.ts";
import { oneIn, oneOf, spread } from "../world/random.ts";
import type { World } from "../world/world.ts";
import { jumpOf, lastingOf, programOf, serverOf, sort } from "./action.ts";

// What happens to API servers and to etcd.

/** What an API server that is late follows after at the latest, in milliseconds. */
const LATEST_MS: Readonly<Lags> = {
  crds: 400_000,
  // What a run waits for late writes has room for that, beside the minute that a request may take.
  handlers: 5_000,
  discovery: 60_000,
  admission: 60_000,
  cache: 60_000,
};
/** For how long one that joins holds its requests, in milliseconds. */
const JOINED_SLOW_MS = 120_000;

interface OfServer {
  readonly server: number;
}

/** An API server crashes and is started again, or stands still and goes on. */
const stopServer = sort<OfServer & { readonly how: "crash" | "pause" | "suspend"; readonly ms: number }>({
  name: "stopServer",
  weight: 2,
  choose: (random, limits) => ({
    server: serverOf(random, limits),
    how: oneOf(random, ["crash", "pause", "suspend"]),
    ms: lastingOf(random),
  }),
  play({ cluster }, { server, how, ms }) {
    if (how === "crash") cluster.crash(server, ms);
    else cluster.standStill(server, ms, how);
  },
});

/** The clock of an API server jumps. */
const jumpServer = sort<OfServer & { readonly byMs: number }>({
  name: "jumpServer",
  choose: (random, limits) => ({ server: serverOf(random, limits), byMs: jumpOf(random) }),
  play: ({ cluster }, { server, byMs }) => cluster.nodeAt(server)?.process.jump(byMs),
});

interface Lateness {
  readonly of: keyof Lags;
  readonly byMs: number;
}

function latenessOf(random: Random): Lateness {
  const of = oneOf(random, ["crds", "handlers", "handlers", "discovery", "admission", "cache"] as const);
  return { of, byMs: Math.round(spread(random, 10, LATEST_MS[of])) };
}

/** An API server follows etcd late from now on: its handlers by some seconds, all else by any time. */
const lag = sort<OfServer & Lateness>({
  name: "lag",
  weight: 4,
  choose: (random, limits) => ({ server: serverOf(random, limits), ...latenessOf(random) }),
  play({ cluster }, { server, of, byMs }) {
    const node = cluster.nodeAt(server);
    if (node) node.lags[of] = byMs;
  },
});

/**
 * An API server cannot fill its watch cache of CRDs for some time, as where it cannot read one of them from etcd. It follows none of their
 * changes, and etcd answers in its place.
 */
const unfill = sort<OfServer & { readonly ms: number }>({
  name: "unfill",
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
const slow = sort<OfServer & { readonly ms: number; readonly holdMs: number }>({
  name: "slow",
  weight: 3,
  choose: (random, limits) => ({
    server: serverOf(random, limits),
    ms: lastingOf(random),
    holdMs: Math.round(spread(random, 10, 60_000)),
  }),
  play: ({ cluster }, { server, ms, holdMs }) => cluster.nodeAt(server)?.slow(ms, holdMs),
});

/** An API server joins, which knows everything as it is when it starts. It may follow what comes later late, and hold its requests. */
const joinServer = sort<Partial<Lateness> & { readonly holdMs?: number }>({
  name: "joinServer",
  choose: (random) => ({
    ...(oneIn(random, 2) ? latenessOf(random) : {}),
    ...(oneIn(random, 4) ? { holdMs: Math.round(spread(random, 10, 60_000)) } : {}),
  }),
  play({ cluster }, { of, byMs, holdMs }) {
    const node = cluster.join();
    if (of !== undefined && byMs !== undefined && node !== undefined) node.lags[of] = byMs;
    if (holdMs !== undefined) node?.slow(JOINED_SLOW_MS, holdMs);
  },
});

/** An API server ends in order: its identity Lease is gone at once, and what is under way may take a minute. */
const leave = sort<OfServer & { readonly backMs?: number; readonly holdMs?: number }>({
  name: "leave",
  choose(random, limits) {
    const server = serverOf(random, limits);
    // ksvm is told the address of the first one, where each has one.
    const isForGood = oneIn(random, 3) && (server > 0 || limits.access === "sampled");
    return {
      server,
      ...(isForGood ? {} : { backMs: Math.round(spread(random, 1_000, 60_000)) }),
      ...(oneIn(random, 2) ? { holdMs: oneOf(random, [2_000, 20_000, 60_000]) } : {}),
    };
  },
  play({ cluster, plan }, { server, backMs, holdMs }) {
    const others = Array.from({ length: plan.servers }, (_, slot) => slot).filter((slot) => slot !== server);
    // The cluster keeps one of those that it began with.
    if (backMs === undefined && !others.some((slot) => !cluster.isGone(slot))) return;
    if (holdMs !== undefined) cluster.nodeAt(server)?.slow(60_000, holdMs);
    cluster.leave(server, backMs);
  },
});

/**
 * etcd forgets all older revisions. The window of one API server's watch cache may move to now as well, and its watches end: those
 * that are opened again from before that get 410.
 */
const compact = sort<{ readonly forgetful?: number }>({
  name: "compact",
  choose: (random, limits) => (oneIn(random, 2) ? { forgetful: serverOf(random, limits) } : {}),
  play({ cluster }, { forgetful }) {
    const { etcd } = cluster;
    if (etcd.revision > etcd.compactedRevision) etcd.compact(etcd.revision);
    const node = forgetful === undefined ? undefined : cluster.nodeAt(forgetful);
    if (node !== undefined && !node.process.isPaused) node.api.forgetEvents();
  },
});

/** One API server after the other gets another build, and is restarted or reads it. */
async function replaceAll(
  world: World,
  change: (slot: number) => void,
  { everyMs, replace }: Replacing,
): Promise<void> {
  const { cluster, schedule } = world;
  for (let slot = 0; slot < 5; slot++) {
    change(slot);
    if (cluster.nodeAt(slot) === undefined) continue;
    replace(slot);
    await schedule.wait(everyMs);
  }
}

interface Replacing {
  readonly everyMs: number;
  readonly replace: (slot: number) => void;
}

/** The API servers are replaced by those of the new release, one by one. */
const upgrade = sort<{ readonly everyMs: number; readonly downMs: number; readonly ms: number }>({
  name: "upgrade",
  weight: 4,
  suits: ({ kinds }) => kinds.some(({ isBuiltIn }) => isBuiltIn === true),
  choose(random, { servers }) {
    const [everyMs, downMs] = [Math.round(spread(random, 100, 120_000)), Math.round(spread(random, 50, 30_000))];
    return { everyMs, downMs, ms: (everyMs + downMs) * servers };
  },
  async play(world, { everyMs, downMs }) {
    const { cluster, plan } = world;
    if (world.isAdministered) return;
    world.isAdministered = true;
    const release = releaseOf(plan, "new");
    await replaceAll(world, (slot) => cluster.builds.set(slot, { ...cluster.buildOf(slot), release }), {
      everyMs: everyMs + downMs,
      replace: (slot) => cluster.crash(slot, downMs),
    });
    world.isAdministered = false;
  },
});

/**
 * The administrator rotates the key that objects are encrypted with: every API server can read the new one first, then each writes
 * it. Some restart their API servers for it, others have them read the file again. Then they re-encrypt.
 */
const rotateKey = sort<{
  readonly how: string;
  readonly everyMs: number;
  readonly program: number;
  readonly ms: number;
}>({
  name: "rotateKey",
  weight: 2,
  choose(random, limits) {
    const everyMs = Math.round(spread(random, 10, 60_000));
    const ms = (everyMs + 2_000) * limits.servers * 2 + 200_000;
    return { how: oneOf(random, ["restart", "reload"]), everyMs, program: programOf(random, limits), ms };
  },
  async play(world, { how, everyMs, program }) {
    const { cluster, plan, schedule } = world;
    if (world.isAdministered) return;
    world.isAdministered = true;
    const next = cluster.buildOf(0).encryption.writes + 1;
    const readable = Array.from({ length: next + 1 }, (_, key) => key);
    for (const encryption of [encryptionOf(plan, next - 1, readable), encryptionOf(plan, next, readable)]) {
      await replaceAll(world, (slot) => cluster.configure(slot, encryption), {
        everyMs: everyMs + 2_000,
        replace: (slot) => (how === "restart" ? cluster.crash(slot, 1_000) : cluster.reload(slot)),
      });
    }
    world.isAdministered = false;
    world.tell("admin", `every API server writes with key ${next}`);
    // The manual says to wait before everything is rewritten.
    await schedule.wait(150_000);
    if (!world.isCalm && plan.programs[program]?.run !== "controller") world.start(program, { force: true });
  },
});

export const SERVER_ACTIONS = [
  stopServer,
  jumpServer,
  lag,
  unfill,
  slow,
  joinServer,
  leave,
  compact,
  upgrade,
  rotateKey,
];
