import { actionSort } from "../actions/all-actions.ts";
import { kindOf, runsOf } from "../actions/choices.ts";
import { oneIn, oneOf, spread } from "../world/random-choices.ts";
import { after, type Aim } from "./aim.ts";

/** API servers follow a webhook within a minute. */
const WEBHOOK_MS = [90_000, 240_000] as const;
const REFUSED_MS = [500, 60_000] as const;

/**
 * While a run writes objects, API servers refuse some requests and say when the next one is welcome, or a webhook changes each object
 * that is written. A run writes for a second or two, which actions at random times miss.
 */
export const WHILE_WRITING: Aim = {
  name: "writes are refused for a while, or changed",
  suits: (limits) => runsOf(limits).length > 0,
  choose(random, limits) {
    if (oneIn(random, 2)) {
      const change = { ...actionSort("mutate").choose(random, limits), kind: kindOf(random, limits), do: "mutate" };
      const lasting = { ...change, ms: Math.round(spread(random, ...WEBHOOK_MS)) };
      const isBefore = oneIn(random, 2);
      return [
        isBefore
          ? { at: Math.max(0, limits.startAt - 5_000), ...lasting }
          : after(limits, { request: "takeLease", nth: 1 }, 0, lasting),
      ];
    }
    const on = { request: "write", nth: 1 + Math.floor(random() * 6) } as const;
    return [
      after(limits, on, 0, {
        do: "throttle",
        status: oneOf(random, [429, 503]),
        retryAfter: oneOf(random, ["1", "5", "30", "3600"]),
        share: spread(random, 0.2, 1),
        ms: Math.round(spread(random, ...REFUSED_MS)),
      }),
    ];
  },
};
