import type { Random } from "../../chaos/random.ts";
import { serverOf } from "../actions/choices.ts";
import type { Action } from "../plan.ts";
import { oneIn, oneOf, spread } from "../world/random-choices.ts";
import type { Aim } from "./aim.ts";

/** A stamp that is so old ends the wait for late writes: the settle time, and the margin for wrong clocks. */
export const OLD_MS = 990_000;

/** What has begun before the storage version changes, in milliseconds since the world was set up. */
const BEFORE = { slow: 1_000, stop: 1_900 };

/** An API server has writes of the old version under way when the storage version changes. */
function writesUnderWay(random: Random, server: number): Action & { readonly server: number } {
  const holdMs = Math.round(spread(random, 5_000, 60_000));
  return { at: BEFORE.slow, do: "slow", server, ms: 120_000, holdMs, writes: 10 } as Action & {
    readonly server: number;
  };
}

function otherwise(at: number, action: Readonly<Record<string, unknown>> & Pick<Action, "do">): Action {
  return { at, ...action };
}

/** What is aimed at the change of the storage version, before any program starts. */
export const BEGINNINGS: readonly Aim[] = [
  {
    name: "the clock of the API servers was behind when the storage version changed",
    weight: 2,
    choose(random, { servers, startAt }) {
      // A stamp may lie by less than the margin; beyond that nothing is promised.
      const byMs = Math.round(spread(random, 70_000, 880_000));
      const rightAt = Math.min(startAt - 1, 3_500);
      const all = Array.from({ length: servers }, (_, server) => server);
      return [
        ...all.map((server) => otherwise(500, { do: "jumpServer", server, byMs: -byMs })),
        ...all.map((server) => otherwise(rightAt, { do: "jumpServer", server, byMs })),
        writesUnderWay(random, Math.floor(random() * servers)),
      ];
    },
  },
  {
    name: "an API server hung since before the storage version changed, long ago",
    weight: 2,
    suits: ({ startAt }) => startAt > OLD_MS,
    choose(random, limits) {
      const server = serverOf(random, limits);
      const ms = Math.max(1_000, Math.round(limits.startAt + spread(random, 1_000, 100_000) - 30_000));
      return [
        { ...writesUnderWay(random, server), ms },
        otherwise(BEFORE.stop, { do: "stopServer", server, how: oneOf(random, ["pause", "suspend"]), ms }),
      ];
    },
  },
  {
    name: "an API server followed a change of long ago a moment ago",
    weight: 2,
    suits: ({ startAt }) => startAt > OLD_MS,
    choose(random, limits) {
      const server = serverOf(random, limits);
      const byMs = Math.round(limits.startAt + spread(random, 1_000, 150_000) - 61_000);
      const slow = {
        ...writesUnderWay(random, server),
        at: Math.round(limits.startAt + spread(random, 100, 90_000) - 60_000),
      };
      return [otherwise(BEFORE.stop, { do: "lag", server, of: "crds", byMs }), slow];
    },
  },
  {
    name: "all machines were suspended after the storage version changed",
    suits: ({ startAt }) => startAt < 60_000,
    choose(random, { servers, startAt }) {
      const slow = writesUnderWay(random, Math.floor(random() * servers));
      const at = startAt + Math.round(spread(random, 1, 60_000));
      return [slow, otherwise(at, { do: "suspendAll", ms: Math.round(spread(random, 900_000, 2_400_000)) })];
    },
  },
  {
    name: "the clock of an API server that answers is ahead",
    choose(random, limits) {
      const slow = writesUnderWay(random, serverOf(random, limits));
      const byMs = Math.round(spread(random, 60_000, 7_200_000));
      const server = serverOf(random, limits);
      const at = oneIn(random, 2) ? 500 : limits.startAt - 1;
      return [slow, otherwise(at, { do: "jumpServer", server, byMs })];
    },
  },
];
