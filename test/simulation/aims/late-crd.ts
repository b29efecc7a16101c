import type { Random } from "../../chaos/random.ts";
import type { Limits } from "../actions/action-sort.ts";
import { serverOf } from "../actions/choices.ts";
import type { Action } from "../plan.ts";
import { oneIn, oneOf, spread } from "../world/random-choices.ts";
import type { Aim } from "./aim.ts";
import { OLD_MS } from "./beginnings.ts";

/** By then all API servers have followed how the world began, in milliseconds after the programs have started. */
const QUIET_MS = 450_000;
/** A run that waits for late writes is over by then, in milliseconds. */
const RUN_MS = 200_000;
/** For how long handlers are behind discovery, and a write that is under way is held, at the most. */
const LATE_MS = 60_000;

/** When things happen, in milliseconds since the world was set up. */
interface Times {
  readonly lagAt: number;
  /** When the API server that is late follows. */
  readonly followsAt: number;
}

/** In which order one process comes to two CRDs: when migrations of the first and of the second one are created, and what else happens. */
type Order = (
  random: Random,
  times: Times,
) => {
  readonly first: number;
  readonly second: number;
  /** When writes of the old version begin that take long, and for how long that goes on. */
  readonly held: readonly (readonly [at: number, ms: number])[];
  readonly areHandlersLate?: boolean;
};

const ORDERS: readonly Order[] = [
  // The second CRD changes after the first run.
  (random, { followsAt, lagAt }) => ({
    first: lagAt - RUN_MS,
    second: followsAt + random() * LATE_MS * 0.5,
    held: [[followsAt - 3_000, 2_900]],
  }),
  // It has changed before the first run, and an API server has yet to follow.
  (random, { followsAt, lagAt }) => ({
    first: lagAt + spread(random, 10_000, followsAt - lagAt - RUN_MS),
    second: followsAt + random() * LATE_MS * 0.5,
    held: [[followsAt - 3_000, 2_900]],
  }),
  // The API server follows before the first run, and its handlers while that waits.
  (random, { followsAt }) => {
    const first = followsAt + 100 + random() * 3_000;
    return {
      first,
      second: first + random() * LATE_MS,
      // Short, so that few questions of ksvm are among what is held.
      held: [0.1, 0.25, 0.45].map((part) => [followsAt + part * LATE_MS + random() * 2_000, 400] as const),
      areHandlersLate: true,
    };
  },
];

/**
 * An API server follows the change of a CRD long after, with writes of the old version under way. A process of ksvm has rewritten the objects of another CRD
 * before that, and then comes to this one. No stamp tells, and no look has seen the API server behind.
 */
export const LATE_CRD: Aim = {
  name: "an API server follows a change of long ago while runs without a freeze follow one another in one process",
  isAlone: true,
  choose(random, limits) {
    const [first = 0, second = first] = limits.kinds.flatMap(({ isBuiltIn }, kind) =>
      isBuiltIn === true ? [] : [kind],
    );
    const { createdIn = "v1" } = limits.kinds[second] ?? {};
    // The requests of a run go to the first one.
    const server = oneIn(random, 6) ? serverOf(random, limits) : limits.servers - 1;
    const lagAt = limits.startAt + QUIET_MS;
    const followsAt = Math.round(lagAt + OLD_MS + spread(random, 20_000, 200_000));
    const order = oneOf(random, ORDERS)(random, { lagAt, followsAt });
    const handlers = { do: "lag", server, of: "handlers", byMs: LATE_MS };
    return [
      action(lagAt - 1_000, { do: "flip", kind: second, to: "v1" }),
      action(lagAt, { do: "lag", server, of: "crds", byMs: followsAt - lagAt - 500 }),
      action(lagAt + 500, { do: "flip", kind: second, to: createdIn }),
      ...(order.areHandlersLate === true ? [action(followsAt - 1, handlers)] : []),
      action(followsAt + 500, { do: "lag", server, of: "crds", byMs: 1 }),
      // What it has yet to follow it follows with the next event.
      action(followsAt + RUN_MS, { do: "annotate", kind: first, how: "label" }),
      ...order.held.map(([at, ms]) =>
        action(at, { do: "slow", server, ms, holdMs: LATE_MS, writes: ms > 1_000 ? 40 : 150 }),
      ),
      migration(first, order.first),
      migration(second, order.second),
      ...prunes(limits, [first, second], followsAt + 300_000),
    ];
  },
};

function migration(kind: number, at: number): Action {
  return action(at, { do: "createMigrations", kind, count: 1, of: "kind", how: "plain" });
}

function prunes({ startAt }: Limits, kinds: readonly number[], end: number): readonly Action[] {
  return kinds.map((kind) => action(startAt, { do: "pruneMigrated", kind, everyMs: 1_000, ms: end - startAt }));
}

function action(at: number, what: Readonly<Record<string, unknown>> & Pick<Action, "do">): Action {
  return { at: Math.round(at), ...what };
}
