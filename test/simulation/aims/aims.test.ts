import tap from "tap";
import { randomFrom } from "../../chaos/random.ts";
import { actionSort } from "../actions/all-actions.ts";
import type { Limits } from "../actions/action-sort.ts";
import { planOf } from "../plan-of.ts";
import { REQUEST_KINDS } from "../world/request-kinds.ts";
import { AIMS } from "./all-aims.ts";
import { BEGINNINGS } from "./beginnings.ts";
import { DEPARTURE_WITH_A_KEY, UNASKED_DEPARTURE } from "./departure-aims.ts";
import { CONVERSION_CHANGE } from "./conversion-change.ts";
import { FORGOTTEN_SILENCE } from "./forgotten-silence.ts";
import { LONG_OBSTACLE } from "./long-obstacle.ts";
import { WHILE_WRITING } from "./while-writing.ts";

const OTHERS = [
  CONVERSION_CHANGE,
  DEPARTURE_WITH_A_KEY,
  FORGOTTEN_SILENCE,
  LONG_OBSTACLE,
  UNASKED_DEPARTURE,
  WHILE_WRITING,
];
const ALL = [...AIMS, ...BEGINNINGS, ...OTHERS];

/** Limits of worlds of each sort that plans have. */
const LIMITS: readonly Limits[] = Array.from({ length: 120 }, (_, seed) => {
  const { actions, ...plan } = planOf(seed + 1);
  const shutdownDelayMs = seed % 2 === 0 ? 0 : 20_000;
  return { ...plan, shutdownDelayMs, startAt: actions.find((action) => action.do === "start")?.at ?? 2_000 };
});

await tap.test("what an aim is made of is plain JSON, and names actions and requests that there are", async (t) => {
  t.equal(new Set(ALL.map(({ name }) => name)).size, ALL.length, "each has a name of its own");
  for (const aim of ALL) {
    const { name, suits } = aim;
    const actions = LIMITS.filter((limits) => suits?.(limits) ?? true).flatMap((limits) =>
      aim.choose(randomFrom(limits.seed), limits),
    );
    t.ok(actions.length > 0, name);
    t.same(JSON.parse(JSON.stringify(actions)), actions, `${name}: JSON`);
    for (const action of actions) {
      t.doesNotThrow(() => actionSort(action.do));
      t.ok(action.on === undefined || REQUEST_KINDS.includes(action.on.request), `${name}: ${action.on?.request}`);
      t.ok(action.at >= 0 && (action.ms ?? 0) >= 0, `${name}: ${action.at} ${action.ms}`);
    }
  }
});
