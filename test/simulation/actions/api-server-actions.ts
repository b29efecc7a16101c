import { oneOf, spread } from "../world/random-choices.ts";
import { sort } from "./action-sort.ts";
import { jumpOf, lastingOf, serverOf } from "./choices.ts";

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
  text: ({ server, how }, names) =>
    how === "crash"
      ? `${names.server(server)} crashes, and starts again`
      : `${names.server(server)} ${how === "suspend" ? "stands still with its machine" : "stands still"}`,
  play({ cluster }, { server, how, ms }) {
    if (how === "crash") {
      cluster.crash(server, ms);
    } else {
      cluster.standStill(server, ms, how);
    }
  },
});

/** The clock of an API server jumps. */
export const jumpServer = sort<{ readonly server: number; readonly byMs: number }>({
  name: "jumpServer",
  choose: (random, limits) => ({ server: serverOf(random, limits), byMs: jumpOf(random) }),
  text: ({ server, byMs }, names) =>
    `the clock of ${names.server(server)} jumps ${byMs < 0 ? "back" : "forward"} by ${names.time(Math.abs(byMs))}`,
  play: ({ cluster }, { server, byMs }) => cluster.nodeAt(server)?.process.jump(byMs),
});

/**
 * An API server follows etcd late from now on. Its handlers are behind its discovery by less than the settle time, and both are behind
 * by any time.
 */
export const lag = sort<{
  readonly server: number;
  readonly of: "crds" | "handlers" | "discovery" | "admission" | "cache";
  readonly byMs: number;
}>({
  name: "lag",
  weight: 4,
  choose(random, limits) {
    const of = oneOf(random, ["crds", "handlers", "handlers", "discovery", "admission", "cache"] as const);
    const byMs = Math.round(spread(random, 10, of === "crds" ? LATEST_MS : 60_000));
    return { server: serverOf(random, limits), of, byMs };
  },
  text({ server, of, byMs }, names) {
    const what = {
      crds: "CRDs",
      handlers: "the storage version in its handlers",
      discovery: "the storage version in its discovery",
      admission: "policies and webhooks",
      cache: "objects in its watch cache",
    }[of];
    return `${names.server(server)} follows ${what} ${names.time(byMs)} late from now on`;
  },
  play({ cluster }, { server, of, byMs }) {
    const node = cluster.nodeAt(server);
    if (node) node.lags[of] = byMs;
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
  text: ({ server, holdMs }, names) => `${names.server(server)} holds requests for up to ${names.time(holdMs)}`,
  play: ({ cluster }, { server, ms, holdMs }) => cluster.nodeAt(server)?.slow(ms, holdMs),
});

/** An API server joins. */
export const joinServer = sort({
  name: "joinServer",
  choose: () => ({}),
  text: () => "an API server joins",
  play: ({ cluster }) => cluster.join(),
});
