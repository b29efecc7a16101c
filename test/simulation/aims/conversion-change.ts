import { hasCrd, kindOf, runsOf, serverOf } from "../actions/choices.ts";
import { oneOf, spread } from "../world/random-choices.ts";
import { after, type Aim } from "./aim.ts";
import { OLD_MS } from "./beginnings.ts";

/** Handlers follow a change within the settle time, most of them sooner. */
const LAG_MS = 60_000;

/** The conversion of a CRD changes right before a run, or in the middle of one, while an API server is behind. */
export const CONVERSION_CHANGE: Aim = {
  name: "the conversion changes",
  suits: (limits) => hasCrd(limits) && runsOf(limits).length > 0,
  choose(random, limits) {
    const { access, kinds, startAt } = limits;
    const kind = kindOf(random, limits);
    const to = kinds[kind]?.isConverted === true ? oneOf(random, ["none", "elsewhere"]) : "webhook";
    const change = { do: "changeConversion", kind, to };
    // Where each can be reached by itself, objects are written through the first one.
    const server = access === "each" ? 0 : serverOf(random, limits);
    const lag = { do: "lag", server, of: "handlers", byMs: LAG_MS };
    if (startAt > OLD_MS) {
      const changedAt = startAt - Math.round(spread(random, 10, 2_000));
      return [
        { at: changedAt - 1_000, ...lag },
        { at: changedAt, ...change },
      ];
    }
    const on = {
      request: oneOf(random, ["firstPage", "write", "write", "nextPage"] as const),
      nth: 1 + Math.floor(random() * 3),
    };
    return [after(limits, on, 0, lag), after(limits, on, 1, change)];
  },
};
