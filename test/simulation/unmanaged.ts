import { type Random, randomFrom } from "../chaos/random.ts";
import type { Limits } from "./actions/action-sort.ts";
import { LATE_CRD } from "./aims/late-crd.ts";
import type { Action, KindPlan } from "./plan.ts";
import { oneIn, spread } from "./world/random-choices.ts";

/** So that these worlds change nothing of what the seeds of others stand for. */
const SALT = 0x8f1a2;
/** In one of so many worlds with controllers these have `--manage-stored-versions=false`. */
const IN = 8;
/** In one of so many of these an API server follows the change of a CRD long after, and nothing else happens. */
const LATE_IN = 2;

/** What is different in worlds whose controllers neither freeze nor prune. */
export interface Unmanaged {
  /** The world as it is with that. */
  limits(limits: Limits): Limits;
  /** What happens there because of that, beside others. */
  actions(limits: Limits): readonly Action[];
  /** What happens there alone; nothing in most worlds. */
  alone(limits: Limits): readonly Action[];
}

/** Worlds without. */
const NONE: Unmanaged = { limits: (limits) => limits, actions: () => [], alone: () => [] };

/**
 * Of a seed whose world has controllers or not.
 * @param another makes one more CRD of that plural
 */
export function unmanagedOf(
  seed: number,
  isControlled: boolean,
  another: (random: Random, plural: string) => KindPlan,
): Unmanaged {
  const random = randomFrom(seed ^ SALT);
  if (!isControlled || !oneIn(random, IN)) return NONE;
  const isLate = oneIn(random, LATE_IN);
  return {
    limits: (limits) =>
      without(limits, { isLate, kinds: kindsOf(limits, isLate || oneIn(random, 2), random, another) }),
    actions: (limits) => (oneIn(random, 2) ? pruned(random, limits) : []),
    alone: (limits) => (isLate ? LATE_CRD.choose(random, limits) : []),
  };
}

/** One run after the other in a process is of one CRD and then of another. */
function kindsOf(
  { kinds }: Limits,
  hasTwo: boolean,
  random: Random,
  another: (random: Random, plural: string) => KindPlan,
): readonly KindPlan[] {
  const crds = kinds.filter(({ isBuiltIn }) => isBuiltIn !== true);
  if (!hasTwo || crds.length > 1) return kinds;
  return [...crds, another(random, "gadgets"), ...kinds.filter(({ isBuiltIn }) => isBuiltIn === true)];
}

/** Such a controller has no webhook. While an API server is late, the trigger would see it, and so the runs that follow. */
function without(
  limits: Limits,
  { isLate, kinds }: { readonly isLate: boolean; readonly kinds: readonly KindPlan[] },
): Limits {
  const { programs, servers } = limits;
  return {
    ...limits,
    kinds,
    servers: isLate ? Math.max(2, servers) : servers,
    programs: programs.map((program) => {
      if (program.run !== "controller") return program;
      const { servesWebhook: _, ...rest } = program;
      return { ...rest, unmanaged: true, ...(isLate ? { trigger: "off" } : {}) };
    }),
  };
}

/** Another client prunes what migrations say is migrated. */
function pruned(random: Random, limits: Limits): readonly Action[] {
  return limits.kinds.flatMap(({ isBuiltIn }, kind) => {
    if (isBuiltIn === true) return [];
    const at = Math.round(limits.startAt + spread(random, 10, 60_000));
    const everyMs = Math.round(spread(random, 400, 8_000));
    const ms = Math.round(spread(random, 200_000, 600_000));
    return [{ at, do: "pruneMigrated", kind, everyMs, ms } as Action];
  });
}
