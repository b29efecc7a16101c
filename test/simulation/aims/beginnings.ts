import type { Random } from "../../chaos/random.ts";
import type { Limits } from "../actions/action-sort.ts";
import { hasCrd, kindOf, runsOf, serverOf } from "../actions/choices.ts";
import type { Action } from "../plan.ts";
import { oneIn, oneOf, spread } from "../world/random-choices.ts";
import { after, type Aim } from "./aim.ts";

/** A stamp that is so old ends the wait for late writes: the settle time, and the margin for wrong clocks. */
export const OLD_MS = 990_000;

/** Late writes are still under way when a program starts that early. */
const SOON_MS = 12_000;

/** What has begun before the storage version changes, in milliseconds since the world was set up. */
const BEFORE = { slow: 1_000, stop: 1_900 };

/**
 * An API server has writes of the old version under way when the storage version changes. By then it is as quick as others, so that
 * the change itself is not late.
 */
function writesUnderWay(random: Random, server: number): Action {
  const holdMs = Math.round(spread(random, 20_000, 60_000));
  return otherwise(BEFORE.slow, { do: "slow", server, ms: 950, holdMs, writes: 24 });
}

function otherwise(at: number, action: Readonly<Record<string, unknown>> & Pick<Action, "do">): Action {
  return { at, ...action };
}

const ALL: readonly Aim[] = [
  {
    name: "the clock of the API servers was behind when the storage version changed",
    weight: 2,
    suits: ({ startAt }) => startAt <= SOON_MS,
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
    name: "an API server hung since before the storage version changed, long ago, and goes on after a run began",
    weight: 2,
    isAlone: true,
    suits: (limits) => limits.startAt > OLD_MS && runsOf(limits).length === 1,
    choose(random, limits) {
      const server = serverOf(random, limits);
      const ms = Math.round(limits.startAt + spread(random, 5_000, 100_000)) - BEFORE.stop;
      return [
        writesUnderWay(random, server),
        otherwise(BEFORE.stop, { do: "stopServer", server, how: oneOf(random, ["pause", "suspend", "suspend"]), ms }),
      ];
    },
  },
  {
    name: "an API server follows a change of long ago after a run began",
    weight: 2,
    isAlone: true,
    suits: (limits) => limits.startAt > OLD_MS && runsOf(limits).length === 1,
    choose(random, limits) {
      const server = serverOf(random, limits);
      const endAt = Math.round(limits.startAt + spread(random, 10_000, 100_000));
      // From the change on both are behind it by that.
      const lag = otherwise(BEFORE.stop, { do: "lag", server, of: "crds", byMs: endAt - 2_000 });
      const slow = { do: "slow", server, ms: 2_900, holdMs: 60_000, writes: 24 };
      return [lag, otherwise(endAt - 3_000, slow)];
    },
  },
  {
    name: "an API server is suspended while late writes are waited for",
    weight: 2,
    suits: ({ startAt }) => startAt <= SOON_MS,
    choose(random, limits) {
      const server = serverOf(random, limits);
      const at = limits.startAt + Math.round(spread(random, 1_000, 40_000));
      const ms = Math.round(spread(random, 8_000, 60_000));
      const empty = otherwise(at + 1, { do: "disturb", how: "empty", share: 1, ms });
      return [
        writesUnderWay(random, server),
        otherwise(at, { do: "stopServer", server, how: "suspend", ms }),
        ...(oneIn(random, 4) ? [empty] : []),
      ];
    },
  },
  {
    name: "all machines were suspended after the storage version changed",
    weight: 2,
    suits: ({ startAt }) => startAt <= SOON_MS,
    choose(random, limits) {
      const slow = writesUnderWay(random, Math.floor(random() * limits.servers));
      const on = {
        request: oneOf(random, ["takeLease", "freeze", "proof", "readCrd", "discovery", "version"] as const),
        nth: 1 + Math.floor(random() * 4),
      };
      return [slow, after(limits, on, 0, { do: "suspendAll", ms: Math.round(spread(random, OLD_MS, 2_400_000)) })];
    },
  },
  {
    name: "an API server is behind the change for longer than late writes are waited for",
    weight: 4,
    suits: ({ access, servers, startAt }) => access === "each" && servers > 1 && startAt <= SOON_MS,
    choose(random, limits) {
      const byMs = Math.round(spread(random, 80_000, 200_000));
      const lag = otherwise(BEFORE.stop, { do: "lag", server: limits.servers - 1, of: "crds", byMs });
      const writes = [60_000, 66_000, 69_000, 75_000].map((ms) => ({
        ...otherwise(limits.startAt + ms, { do: "writeObject", kind: 0, how: "update", object: 1 }),
        writes: 8,
      }));
      return [lag, ...writes];
    },
  },
  {
    name: "the storage version went there and back, and an API server sees that later than late writes are waited for",
    weight: 4,
    suits: (limits) => limits.servers > 1 && limits.startAt <= SOON_MS && hasCrd(limits),
    choose(random, limits) {
      // The run talks to the first one, or to any of them: where that is behind, it cannot begin.
      const server = oneIn(random, 4) ? serverOf(random, limits) : limits.servers - 1;
      const byMs = Math.round(spread(random, 68_000, 130_000));
      const kind = kindOf(random, limits);
      const there = limits.kinds[kind]?.createdIn ?? "";
      const thereAt = 1_100;
      const writes = [50, 300, 600].map((ms) => ({
        ...otherwise(thereAt + byMs + ms, { do: "writeObject", kind, how: "update", object: 1 }),
        writes: 8,
      }));
      return [
        otherwise(500, { do: "flip", kind, to: "v1" }),
        otherwise(1_000, { do: "lag", server, of: "crds", byMs }),
        otherwise(thereAt, { do: "flip", kind, to: there }),
        otherwise(BEFORE.stop, { do: "flip", kind, to: "v1" }),
        ...writes,
      ];
    },
  },
  {
    name: "an API server hangs from before the change until after a run",
    weight: 3,
    suits: ({ servers, startAt }) => servers > 1 && startAt <= SOON_MS,
    choose(random, limits) {
      const hung = serverOf(random, limits);
      const ms = limits.startAt + Math.round(spread(random, 110_000, 220_000));
      const others = Array.from({ length: limits.servers }, (_, server) => server).filter((server) => server !== hung);
      // By a clock that is an hour ahead its identity Lease has expired.
      const byMs = Math.round(spread(random, 3_700_000, 7_200_000));
      const ahead = others.map((server) => otherwise(limits.startAt - 1, { do: "jumpServer", server, byMs }));
      return [
        writesUnderWay(random, hung),
        otherwise(BEFORE.stop, { do: "stopServer", server: hung, how: oneOf(random, ["pause", "suspend"]), ms }),
        ...(oneIn(random, 2) ? ahead : []),
      ];
    },
  },
  {
    name: "an API server that no address shows any more hangs from before the change until after a run",
    weight: 3,
    suits: ({ servers, startAt }) => servers > 1 && startAt > SOON_MS && startAt < OLD_MS,
    choose(random, limits) {
      const server = limits.servers - 1;
      const ms = limits.startAt + Math.round(spread(random, 80_000, 160_000));
      return [writesUnderWay(random, server), otherwise(BEFORE.stop, { do: "stopServer", server, how: "suspend", ms })];
    },
  },
  {
    name: "the guard is in force late, and a balancer may answer what should prove it",
    weight: 3,
    suits: ({ startAt }) => startAt <= SOON_MS,
    choose(random, limits) {
      const all = Array.from({ length: limits.servers }, (_, server) => server);
      const isFirstInTime = oneIn(random, 2);
      const late = all
        .filter((server) => server > 0 || !isFirstInTime)
        .map((server) => otherwise(BEFORE.stop, { do: "lag", server, of: "admission", byMs: 60_000 }));
      const how = oneOf(random, ["404", "503", "html", "reset"]);
      const disturb = { do: "disturb", how, share: 0.5, ms: Math.round(spread(random, 100, 3_000)) };
      const on = { request: "proof", nth: 1 } as const;
      const kind = 0;
      const to = limits.kinds[kind]?.createdIn ?? "v1";
      return [
        ...late,
        ...(oneIn(random, 2) ? [after(limits, { request: "freeze", nth: 1 }, 0, disturb)] : []),
        // One that comes before all API servers have shown the proof ends the run.
        ...[oneOf(random, [50, 400]), 1_000, 5_000, 15_000, 30_000].map((ms) =>
          after(limits, on, ms, { do: "flip", kind, to }),
        ),
      ];
    },
  },
  {
    name: "the clock of an API server that answers is ahead",
    suits: ({ startAt }) => startAt <= SOON_MS,
    choose(random, limits) {
      const slow = writesUnderWay(random, serverOf(random, limits));
      const byMs = Math.round(spread(random, 60_000, 7_200_000));
      const server = serverOf(random, limits);
      const at = oneIn(random, 2) ? 500 : limits.startAt - 1;
      return [slow, otherwise(at, { do: "jumpServer", server, byMs })];
    },
  },
];

/** What is aimed at the change of the storage version of a CRD, before any program starts. */
export const BEGINNINGS: readonly Aim[] = ALL.map((aim) => ({
  ...aim,
  // Certificates do not last as long as some of the clocks jump.
  suits: (limits) => isOfRuns(limits) && limits.lifetimes === undefined && (aim.suits?.(limits) ?? true),
}));

/** Whether the world is about runs on CRDs, and not about a controller. */
function isOfRuns({ kinds, programs }: Limits): boolean {
  return programs[0]?.run === "migrate" && kinds[0]?.isBuiltIn !== true;
}
