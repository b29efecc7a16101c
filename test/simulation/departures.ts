import { randomFrom } from "../chaos/random.ts";
import { actionSort } from "./actions/all-actions.ts";
import type { Limits } from "./actions/action-sort.ts";
import { momentOf } from "./actions/choices.ts";
import { after, anyMoment } from "./aims/aim.ts";
import { OLD_MS } from "./aims/beginnings.ts";
import { DEPARTURE_WITH_A_KEY, UNASKED_DEPARTURE } from "./aims/departure-aims.ts";
import type { Action } from "./plan.ts";
import { oneIn, oneOf } from "./world/random-choices.ts";

/** So that departures change nothing of what the seeds of other worlds stand for. */
const SALT = { delay: 0xde9a7, alone: 0x1ea7e, others: 0x0bb1e };
/** In one of so many worlds API servers end in order; more often where runs re-encrypt, or start long after the storage version changed. */
const IN = { late: 2, reencrypted: 4, others: 10 } as const;
/** `--shutdown-delay-duration`, where it is not 0, and how much longer it is at the most, in milliseconds. */
const DELAY_MS = { least: 10_000, more: 20_000 };

/** What is known of a world, with how long its API servers take requests that end in order. */
export function withDepartures(limits: Limits): Limits {
  const random = randomFrom(limits.seed ^ SALT.delay);
  const isLate = limits.startAt > OLD_MS;
  const others = limits.programs[0]?.run === "reencrypt" ? IN.reencrypted : IN.others;
  if (!oneIn(random, isLate ? IN.late : others)) return limits;
  // What runs rest on where the change is old shows without a delay as well.
  const isAtOnce = oneIn(random, isLate ? 2 : 3);
  return { ...limits, shutdownDelayMs: isAtOnce ? 0 : Math.round(DELAY_MS.least + random() * DELAY_MS.more) };
}

/** What happens alone in a world, close to the moment that matters; nothing in most worlds. */
export function departureAlone(limits: Limits): readonly Action[] {
  const random = randomFrom(limits.seed ^ SALT.alone);
  const aim = [UNASKED_DEPARTURE, DEPARTURE_WITH_A_KEY].find(({ suits }) => suits?.(limits) === true);
  return aim !== undefined && oneIn(random, 2) ? aim.choose(random, limits) : [];
}

/** API servers that end in a world with others of its disturbances. */
export function departures(limits: Limits): readonly Action[] {
  if (limits.shutdownDelayMs === undefined) return [];
  const random = randomFrom(limits.seed ^ SALT.others);
  return Array.from({ length: oneOf(random, [0, 1, 1, 2]) }, () => {
    const action = { do: "leave", ...actionSort("leave").choose(random, limits) };
    return oneIn(random, 2)
      ? { at: momentOf(random, limits), ...action }
      : after(limits, anyMoment(random, limits), 0, action);
  });
}
