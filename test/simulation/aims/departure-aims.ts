import type { Random } from "../../chaos/random.ts";
import type { Limits } from "../actions/action-sort.ts";
import { hasCrd, hasReencryptions, kindOf, runsOf, serverOf } from "../actions/choices.ts";
import { departureMs } from "../actions/departure-actions.ts";
import type { Action } from "../plan.ts";
import { oneOf, spread } from "../world/random-choices.ts";
import { after, type Aim } from "./aim.ts";

/** Requests are held for as long as an API server may have them under way, in milliseconds. */
const HOLD_MS = 60_000;
/** Writes that come with an action take so long to come, in milliseconds. */
const BURST_MS = 3_000;
/** By then the world has begun, and the storage version is about to change, in milliseconds. */
const BEFORE_CHANGE = { lag: 1_900, slow: 1_000 };
/** What makes a run of a few objects take half a minute, in milliseconds. */
const SLOW_MS = 30_000;
const SLOW_HOLD_MS = 5_000;
/** An API server that follows no change of a CRD, in milliseconds. */
const NEVER_MS = 86_400_000;

/** One that ends for good, and holds what it takes for as long as it may. */
function departure(server: number, { shutdownDelayMs = 0 }: Limits): Pick<Action, "do" | "ms"> {
  const shape = { server, delayMs: shutdownDelayMs, ms: departureMs({ delayMs: shutdownDelayMs }) };
  return { do: "leave", ...shape, ...(shutdownDelayMs === 0 ? {} : { holdMs: HOLD_MS }) };
}

/** Users write while it takes requests: the last ones right before it takes none. */
function writesUntil({ kinds }: Limits, kind: number, delayMs: number): readonly [number, Omit<Action, "at" | "on">][] {
  const writeObject = { do: "writeObject", kind, how: "update", object: 1, writes: 40 };
  const isThere = kinds[kind] !== undefined && delayMs > BURST_MS;
  return isThere ? [0.5, 0.9, 1].map((share) => [share * (delayMs - BURST_MS), writeObject]) : [];
}

/** One that can end for good: the run itself talks to the first one, where each has an address. */
function endingOf(random: Random, limits: Limits): number {
  return limits.access === "each" ? Math.max(1, serverOf(random, limits)) : serverOf(random, limits);
}

/**
 * An API server is behind the change of the storage version. A run looks at the identity Leases before it freezes the CRD, and asks the
 * API servers after that: this one ends in between. So nothing shows that it was behind, and it has writes of the old version under way.
 */
export const UNASKED_DEPARTURE: Aim = {
  name: "an API server that is behind ends before a run asks it",
  isAlone: true,
  suits: (limits) =>
    limits.shutdownDelayMs !== undefined &&
    limits.servers > 1 &&
    limits.programs[0]?.run === "migrate" &&
    hasCrd(limits) &&
    runsOf(limits).length === 1,
  choose(random, limits) {
    const { shutdownDelayMs = 0, startAt } = limits;
    const server = endingOf(random, limits);
    const kind = kindOf(random, limits);
    const slowAt = Math.max(BEFORE_CHANGE.slow, startAt - BURST_MS - 200);
    const slow = { do: "slow", server, ms: Math.min(BURST_MS, startAt - 100 - slowAt), holdMs: HOLD_MS, writes: 24 };
    const on = oneOf(random, [
      { request: "takeLease", nth: 1 },
      { request: "freeze", nth: 1 },
      { request: "freeze", nth: 1 },
    ] as const);
    return [
      { at: BEFORE_CHANGE.lag, do: "lag", server, of: "crds", byMs: startAt + NEVER_MS } as Action,
      ...(slowAt > BEFORE_CHANGE.lag + 1_000 ? [{ at: slowAt, ...slow }] : []),
      after(limits, on, 0, departure(server, limits)),
      ...writesUntil(limits, kind, shutdownDelayMs).map(([ms, write]) => after(limits, on, ms, write)),
    ];
  },
};

/** By then the key was rotated, and each API server has read the new configuration, in milliseconds since the world was set up. */
const ROTATED_MS = 60_000;
/** Late writes are waited for by then, where the shutdown delay is not, in milliseconds since a run began. */
const REWRITING_MS = 64_000;

/**
 * An API server that writes with the key before ends right before a re-encryption begins, which takes so long that what was under way
 * there lands before it is done.
 */
export const DEPARTURE_WITH_A_KEY: Aim = {
  name: "an API server with the key before ends, and a re-encryption begins",
  isAlone: true,
  suits: (limits) =>
    limits.shutdownDelayMs !== undefined &&
    limits.servers > 1 &&
    limits.startAt > ROTATED_MS &&
    hasReencryptions(limits) &&
    limits.programs[0]?.run === "reencrypt",
  choose(random, limits) {
    const { programs, servers, shutdownDelayMs = 0, startAt } = limits;
    const server = endingOf(random, limits);
    const at = Math.round(startAt - spread(random, 10, 2_000));
    const switchedAt = at - 2_000;
    const rotation = { do: "rotateKey", how: "reload", everyMs: 10, program: programs.length - 1, ms: ROTATED_MS };
    const slow = Array.from({ length: servers }, (_, other) => other).filter((other) => other !== server);
    return [
      { at: 100, ...rotation },
      { at: switchedAt, do: "switchKey", server, ms: at - switchedAt + shutdownDelayMs + HOLD_MS } as Action,
      { at, ...departure(server, limits) },
      ...writesUntil(limits, 0, shutdownDelayMs).map(([ms, write]) => ({ at: Math.round(at + ms), ...write })),
      ...slow.map(
        (other) =>
          ({ at: startAt + REWRITING_MS, do: "slow", server: other, ms: SLOW_MS, holdMs: SLOW_HOLD_MS }) as Action,
      ),
    ];
  },
};
