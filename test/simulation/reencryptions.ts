import { type Random, randomFrom } from "../chaos/random.ts";
import { actionSort } from "./actions/all-actions.ts";
import type { Limits } from "./actions/action-sort.ts";
import { serverOf } from "./actions/choices.ts";
import { after } from "./aims/aim.ts";
import type { Action, KindPlan, ProgramPlan } from "./plan.ts";
import type { RequestKind } from "./world/request-kinds.ts";
import type { RequestMoment } from "./world/request-triggers.ts";
import { oneIn, oneOf, spread } from "./world/random-choices.ts";

/** So that re-encryptions change nothing of what the seeds of other worlds stand for. */
const SALT = 0x4e6c7;
/** One in so many worlds has them, by what is migrated there. */
const IN = { builtIn: 2, custom: 12, controlled: 6 } as const;

/** How many requests of a kind a run sends, roughly. */
const MOMENTS: readonly (readonly [RequestKind, number])[] = [
  ["takeLease", 1],
  ["discovery", 8],
  ["version", 60],
  ["firstPage", 1],
  ["nextPage", 4],
  ["write", 12],
  ["checkpoint", 4],
  ["checkpoint", 4],
];

/** What re-encrypts in a world, and what happens there because of that. */
export interface Reencryptions {
  /** The programs in the place of those that the world would have. */
  programs(runs: readonly ProgramPlan[]): readonly ProgramPlan[];
  actions(limits: Limits): readonly Action[];
}

/** Worlds without. */
const NONE: Reencryptions = { programs: (runs) => runs, actions: () => [] };

/** The re-encryptions of a seed: runs of `ksvm reencrypt`, or migrations that ask controllers for it. */
export function reencryptionsOf(seed: number, { isBuiltIn }: KindPlan, isControlled: boolean): Reencryptions {
  const random = randomFrom(seed ^ SALT);
  const sort = isControlled ? "controlled" : isBuiltIn === true ? "builtIn" : "custom";
  if (!oneIn(random, IN[sort])) return NONE;
  return isControlled ? byControllers(random) : byCommands(random);
}

/** Keys are rotated before the runs begin, while they run, and after that. */
function byCommands(random: Random): Reencryptions {
  return {
    programs: (runs) => runs.map((run) => ({ ...run, run: "reencrypt" })),
    actions: (limits) => [rotation(random, limits), ...betweenLooks(random, limits)],
  };
}

function byControllers(random: Random): Reencryptions {
  return {
    programs: (runs) => runs.map((run) => (run.run === "controller" ? { ...run, reencrypts: true } : run)),
    actions: (limits) => [
      rotation(random, limits),
      ...betweenLooks(random, limits),
      ...Array.from({ length: oneOf(random, [0, 2, 4]) }, () => askedLate(random, limits)),
      ...Array.from({ length: oneOf(random, [1, 2, 3]) }, () => asked(random, limits)),
    ],
  };
}

function rotation(random: Random, limits: Limits): Action {
  const at = Math.round(limits.startAt + spread(random, 10, 200_000) - (oneIn(random, 2) ? limits.startAt : 0));
  return { at, do: "rotateKey", writes: 10, ...actionSort("rotateKey").choose(random, limits) };
}

/** An API server writes with the key before: for as long as a run lasts, or for a while that it may not notice. */
function betweenLooks(random: Random, limits: Limits): readonly Action[] {
  const sort = oneOf(random, ["none", "late", "switch", "switch", "visit"]);
  const server = serverOf(random, limits);
  if (sort === "none") return [];
  if (sort === "late") {
    const at = Math.max(10, Math.round(limits.startAt - spread(random, 10, 30_000)));
    return [{ at, do: "switchKey", server, ms: Math.round(spread(random, 60_000, 300_000)), writes: 12 } as Action];
  }
  const ms = Math.round(spread(random, 20, 5_000));
  const action = sort === "switch" ? { do: "switchKey", server, ms } : { do: "visit", ms };
  return [after(limits, someMoment(random), spread(random, 1, 2_000), { ...action, writes: 12 })];
}

function someMoment(random: Random): RequestMoment {
  const [request, most] = oneOf(random, MOMENTS);
  return { request, nth: 1 + Math.floor(random() * most) };
}

/** A user asks for it of a migration that runs already. */
function askedLate(random: Random, limits: Limits): Action {
  const index = Math.floor(random() * 4);
  return after(limits, someMoment(random), spread(random, 1, 1_000), { do: "editMigration", index, how: "reencrypt" });
}

function asked(random: Random, limits: Limits): Action {
  const at = Math.round(limits.startAt + spread(random, 10, 300_000));
  const migrations = {
    ...actionSort("createMigrations").choose(random, limits),
    count: 1,
    of: "kind",
    how: "reencrypt",
  };
  return { at, do: "createMigrations", ...migrations };
}
