import { actionSort } from "../actions/all-actions.ts";
import { hasCrd, kindOf, runsOf } from "../actions/choices.ts";
import { spread } from "../world/random-choices.ts";
import { after, type Aim } from "./aim.ts";

/** Beyond what a run that does not get on keeps its freeze for, and what a check leaves it to lift it; in milliseconds. */
const LASTING_MS = [800_000, 1_200_000] as const;

/** A webhook fails from the first writes of objects on, for longer than a run keeps its freeze. */
export const LONG_OBSTACLE: Aim = {
  name: "a webhook fails for longer than a freeze is kept",
  suits: (limits) => hasCrd(limits) && runsOf(limits).length > 0,
  choose(random, limits) {
    const on = { request: "write", nth: 1 + Math.floor(random() * 6) } as const;
    const harm = {
      ...actionSort("failWebhook").choose(random, limits),
      kind: kindOf(random, limits),
      isIgnored: false,
    };
    return [after(limits, on, 0, { ...harm, do: "failWebhook", ms: Math.round(spread(random, ...LASTING_MS)) })];
  },
};
