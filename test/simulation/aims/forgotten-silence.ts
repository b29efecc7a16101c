import { runsOf, serverOf } from "../actions/choices.ts";
import { spread } from "../world/random-choices.ts";
import type { Aim } from "./aim.ts";
import { OLD_MS } from "./beginnings.ts";

/** When, after a run began, an API server stands still that it waits for, in milliseconds. */
const STOPPED_MS = 100_000;
/**
 * By then the attempt has given it up, after `--convergence-timeout`, the settle time and a request without an answer; the next one looks
 * for it five seconds later.
 */
const GIVEN_UP_MS = 195_300;
const WAKES_WITHIN_MS = 4_000;

/** Its handlers follow that much later at the most, and discovery shows nothing of that. */
const HANDLERS_MS = 60_000;

/**
 * An API server is behind a change of long ago, and then stands still. An attempt that waits for it gives it up; by the next one it has
 * followed, and nothing shows any more that it was behind or silent. Writes that it had under way still land in the old version.
 */
export const FORGOTTEN_SILENCE: Aim = {
  name: "an API server that ended an attempt has followed by the next one",
  isAlone: true,
  suits: (limits) =>
    limits.startAt > OLD_MS &&
    limits.servers > 1 &&
    limits.access === "each" &&
    limits.kinds[0]?.isBuiltIn !== true &&
    runsOf(limits).length === 1,
  choose(random, limits) {
    const { startAt } = limits;
    // The run itself talks to the first one.
    const server = Math.max(1, serverOf(random, limits));
    const stoppedAt = startAt + STOPPED_MS;
    const wakesAt = Math.round(startAt + GIVEN_UP_MS + spread(random, 1, WAKES_WITHIN_MS));
    const writes = [4_500, 6_000, 9_000, 14_000, 25_000].map((ms) => ({
      at: wakesAt + ms,
      do: "writeObject",
      kind: 0,
      how: "update",
      object: 1,
      writes: 8,
    }));
    return [
      { at: 1_900, do: "lag", server, of: "crds", byMs: stoppedAt },
      { at: 1_900, do: "lag", server, of: "handlers", byMs: HANDLERS_MS },
      // Suspended with its machine, it has as much of the time of these writes left when it goes on.
      { at: stoppedAt - 3_000, do: "slow", server, ms: 2_900, holdMs: 60_000, writes: 24 },
      { at: stoppedAt, do: "stopServer", server, how: "suspend", ms: wakesAt - stoppedAt },
      // Else it would be behind the freeze of the next attempt as well.
      { at: stoppedAt + 1_000, do: "lag", server, of: "crds", byMs: 10 },
      ...writes,
    ];
  },
};
