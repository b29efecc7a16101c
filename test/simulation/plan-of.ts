import { type Random, randomFrom } from "../chaos/random.ts";
import { hasController, hasCrd, kindOf, type Limits, momentOf, serverOf } from "./actions/action.ts";
import { ACTIONS, actionSort } from "./actions/all.ts";
import { after, type Aim, AIMS, anyMoment, BEGINNINGS, isFor } from "./aims.ts";
import type { Action, KindPlan, Plan, ProgramPlan } from "./plan.ts";
import { oneIn, oneOf, spread } from "./world/random.ts";

const VERSIONS = ["v1alpha1", "v1beta1", "v1"];
/** When the storage version changes for the first time. */
const FLIP_AT = 2_000;
/** One in so many worlds has replicas of the controller: such a world takes several times as long. */
const CONTROLLED_IN = 12;
/** A change of a CRD that is so old is long past, in milliseconds: nothing is waited for. */
const OLD_MS = 3 * 3_600_000 + 120_000;

/** The plan that a seed stands for. @param aim that a world has alone, for a world that it suits */
export function planOf(seed: number, aim?: Aim): Plan {
  for (let turn = 0; ; turn++) {
    const random = randomFrom(seed + turn * TURN);
    const isAimed = aim !== undefined || !oneIn(random, 3);
    const limits = limitsOf(seed, random, isAimed);
    if (aim !== undefined && !(isFor(aim, limits) && isPlain(limits, aim))) continue;
    const actions = [
      ...beginning(random, limits),
      ...(aim === undefined ? disturbed(random, limits, isAimed) : aim.choose(random, limits)),
    ];
    const { startAt: _, ...plan } = limits;
    return { ...plan, actions: actions.toSorted((a, b) => a.at - b.at) };
  }
}

/** So that no two turns of two seeds are alike. */
const TURN = 1_000_003;

/** Of what an aim suits as well, a world is chosen that is about it alone. */
function isPlain(limits: Limits, aim: Aim): boolean {
  const isOfCommands = !limits.programs.some(({ run }) => run !== "migrate") && hasCrd(limits);
  return isOfCommands || !isFor(aim, { ...limits, programs: [{ run: "migrate", kind: 0, force: false }] });
}

function limitsOf(seed: number, random: Random, isAimed: boolean): Limits {
  const isControlled = oneIn(random, CONTROLLED_IN);
  // What is aimed at pages and writes needs some of them.
  const objects: Objects = isAimed && !isControlled ? [8, 36] : [1, 24];
  const isBuiltIn = !isControlled && oneIn(random, 6);
  const kinds = [
    isBuiltIn ? builtIn(random, objects) : custom(random, "widgets", objects),
    ...(!isBuiltIn && oneIn(random, isControlled ? 4 : 8) ? [custom(random, "gadgets", objects)] : []),
    ...(isControlled && oneIn(random, 5) ? [builtIn(random, [1, 12])] : []),
  ];
  const reencrypts = oneIn(random, isBuiltIn ? 2 : isControlled ? 8 : 28);
  const isLongAgo = !isControlled && oneIn(random, 16);
  return {
    seed,
    servers: oneOf(random, [1, 2, 2, 3]),
    // Behind one address ksvm asks again and again until it has met all of them.
    access: oneIn(random, 5) ? "sampled" : "each",
    ...(oneIn(random, isControlled ? 5 : 12) ? { hasInTree: true } : {}),
    ...(oneIn(random, 5) ? { hasWebhook: true } : {}),
    kinds,
    ...(!isControlled && oneIn(random, 4) ? { maxInFlight: 3 } : {}),
    programs: isControlled ? replicas(random, reencrypts) : commands(random, reencrypts, kinds.length),
    writeEveryMs: Math.round(isLongAgo ? 120_000 : spread(random, 5_000, 90_000)),
    startAt:
      isControlled && oneIn(random, 2)
        ? 10
        : FLIP_AT + (isLongAgo ? OLD_MS : oneOf(random, [5, 100, 2_000, 10_000, 70_000, 300_000])),
  };
}

/** What happens beside the beginning: close to the moments that matter, at random times, or both. */
function disturbed(random: Random, limits: Limits, isAimed: boolean): readonly Action[] {
  const beginnings = BEGINNINGS.filter((aim) => isFor(aim, limits));
  const isBegunAimed = isAimed && beginnings.length > 0 && oneIn(random, 2);
  const others = AIMS.filter((aim) => isFor(aim, limits));
  return [
    ...(isBegunAimed ? aimed(random, limits, beginnings) : []),
    ...(isAimed && !(isBegunAimed && oneIn(random, 2)) ? aimed(random, limits, others) : []),
    ...(isAimed && oneIn(random, 2) ? [] : disturbances(random, limits)),
    ...reencryption(random, limits),
  ];
}

/** At the least and at the most. */
type Objects = readonly [number, number];

/** @param kinds how many there are: who migrates more than one does so at once */
function commands(random: Random, reencrypts: boolean, kinds = 1): readonly ProgramPlan[] {
  const force = oneIn(random, 6);
  const also = Array.from({ length: kinds - 1 }, (_, index) => index + 1);
  const program: ProgramPlan = { run: reencrypts ? "reencrypt" : "migrate", kind: 0, force, also };
  return Array.from({ length: oneOf(random, [1, 1, 2]) }, () => program);
}

/** Replicas of the controller; someone may migrate by hand as well. */
function replicas(random: Random, reencrypts: boolean): readonly ProgramPlan[] {
  const trigger = oneIn(random, 5) ? "off" : "on";
  const replica: ProgramPlan = {
    run: "controller",
    kind: 0,
    force: false,
    trigger,
    ...(reencrypts ? { reencrypts } : {}),
  };
  const others = oneIn(random, 4) ? commands(random, false).slice(0, 1) : [];
  return [replica, replica, ...others];
}

function custom(random: Random, plural: string, objects: Objects): KindPlan {
  const versions = oneIn(random, 3) ? VERSIONS : ["v1alpha1", "v1"];
  return {
    plural,
    versions,
    createdIn: oneOf(random, versions.slice(0, -1)),
    objects: objectsOf(random, objects),
  };
}

/** Of most worlds few: some have enough that a run adapts how many requests it has under way. */
function objectsOf(random: Random, objects: Objects): number {
  return oneIn(random, 50) ? 120 : Math.floor(spread(random, ...objects));
}

const BUILT_INS = [
  { plural: "deployments", versions: ["v1"] },
  { plural: "volumeattributesclasses", versions: ["v1beta1", "v1"] },
  { plural: "secrets", versions: ["v1"] },
] as const;

/** A resource whose storage version changes with the release of the API servers, or its key with their configuration. */
function builtIn(random: Random, objects: Objects): KindPlan {
  const { plural, versions } = oneOf(random, BUILT_INS);
  return { plural, versions, createdIn: versions[0], objects: objectsOf(random, objects), isBuiltIn: true };
}

/**
 * How most worlds begin: the storage version changes while writes are under way, often on an API server that is slow or late, and
 * the programs start some time after that.
 */
function beginning(random: Random, limits: Limits): readonly Action[] {
  const server = serverOf(random, limits);
  const slow = { at: oneOf(random, [500, 1_900]), do: "slow", server, ms: 120_000, holdMs: 60_000, writes: 10 };
  const flip = { at: FLIP_AT, do: "flip", kind: 0, to: "v1", writes: 10 };
  const another = limits.kinds.length > 1 && limits.kinds[1]?.isBuiltIn !== true ? [{ ...flip, kind: 1 }] : [];
  const change = hasCrd(limits) ? flip : actionOf(random, limits, oneOf(random, ["upgrade", "rotateKey"]), FLIP_AT);
  return [
    ...(oneIn(random, 2) ? [slow] : []),
    ...(oneIn(random, 2) ? [actionOf(random, limits, "lag", 1_500)] : []),
    change,
    ...another,
    ...limits.programs.map((_, program) => ({
      at: limits.startAt + Math.round(program * spread(random, 1, 10_000)),
      do: "start",
      program,
    })),
  ];
}

/** A world has a few sorts of disturbances, and those more often: with all of them at once no two would ever meet. */
function disturbances(random: Random, limits: Limits): readonly Action[] {
  const tickets = ACTIONS.filter(({ suits }) => suits?.(limits) ?? true).flatMap(({ name, weight = 1 }) =>
    Array<string>(weight).fill(name),
  );
  const sorts = Array.from({ length: Math.floor(spread(random, 1, 8)) }, () => oneOf(random, tickets));
  const count = Math.floor(spread(random, 1, 24));
  return Array.from({ length: count }, () => {
    const action = actionOf(random, limits, oneOf(random, sorts));
    const { at: _, ...deed } = action;
    return oneIn(random, 4) ? after(limits, anyMoment(random, limits), 0, deed) : action;
  });
}

/** What happens close to the moments that matter. */
function aimed(random: Random, limits: Limits, aims: readonly Aim[]): readonly Action[] {
  const tickets = aims.flatMap((aim) => Array<Aim>(aim.weight ?? 1).fill(aim));
  const count = oneOf(random, [1, 1, 2]);
  return Array.from({ length: tickets.length === 0 ? 0 : count }, () => oneOf(random, tickets)).flatMap((aim) =>
    aim.choose(random, limits),
  );
}

/** Keys are rotated before the runs begin, while they run, and after that; users ask controllers for it. */
function reencryption(random: Random, limits: Limits): readonly Action[] {
  const isControlled = hasController(limits);
  if (!limits.programs.some(({ run, reencrypts }) => run === "reencrypt" || reencrypts === true)) return [];
  const at = Math.round(limits.startAt + spread(random, 10, 200_000) - (oneIn(random, 2) ? limits.startAt : 0));
  const rotation = { ...actionOf(random, limits, "rotateKey", at), writes: 10 };
  const asked = Array.from({ length: isControlled ? oneOf(random, [1, 2]) : 0 }, () => ({
    at: Math.round(limits.startAt + spread(random, 10, 300_000)),
    do: "createMigrations",
    kind: kindOf(random, limits),
    count: 1,
    of: "kind",
    how: "reencrypt",
  }));
  return [rotation, ...asked];
}

function actionOf(random: Random, limits: Limits, name: string, at = momentOf(random, limits)): Action {
  const writes = oneIn(random, 2) ? { writes: Math.floor(spread(random, 1, 12)) } : {};
  return { at, do: name, ...writes, ...actionSort(name).choose(random, limits) };
}
