import { type Random, randomFrom } from "../chaos/random.ts";
import { ACTIONS, actionSort } from "./actions/all-actions.ts";
import type { Limits } from "./actions/action-sort.ts";
import { hasCrd, kindOf, momentOf, serverOf } from "./actions/choices.ts";
import { after, type Aim, anyMoment } from "./aims/aim.ts";
import { AIMS } from "./aims/all-aims.ts";
import { CONVERSION_CHANGE } from "./aims/conversion-change.ts";
import { FORGOTTEN_SILENCE } from "./aims/forgotten-silence.ts";
import { LONG_OBSTACLE } from "./aims/long-obstacle.ts";
import { WHILE_WRITING } from "./aims/while-writing.ts";
import { BEGINNINGS, OLD_MS } from "./aims/beginnings.ts";
import { departureAlone, departures, withDepartures } from "./departures.ts";
import { installationOf, NOTHING } from "./installations.ts";
import { type Action, isServing, type KindPlan, type Plan, type ProgramPlan } from "./plan.ts";
import { reencryptionsOf } from "./reencryptions.ts";
import { unmanagedOf } from "./unmanaged.ts";
import { oneIn, oneOf, spread } from "./world/random-choices.ts";

const VERSIONS = ["v1alpha1", "v1beta1", "v1"];
/** When the storage version changes for the first time. */
const FLIP_AT = 2_000;
/** One in so many worlds has replicas of the controller: such a world takes several times as long. */
const CONTROLLED_IN = 8;
/** In one of so many of these the replicas serve the webhook as well, as those that are installed do. */
const SERVING_IN = 3;
/** So that this changes nothing of what else a seed stands for. */
const SERVING_SALT = 0x5e71;
/** In one of so many worlds a webhook fails for longer than a freeze is kept: such a world lasts long. */
const LONG_OBSTACLE_IN = 40;
/** As that of the replicas which serve the webhook. */
const LONG_OBSTACLE_SALT = 0x10b6;
/** In one of so many worlds API servers refuse writes of a run for a while, or a webhook changes what is written. */
const WHILE_WRITING_IN = 25;
/** As that of the long obstacle. */
const WHILE_WRITING_SALT = 0x3217e;
/** In one of so many worlds webhooks of others see what ksvm writes beside objects. */
const MEDDLING_IN = 8;
/** As that of the replicas which serve the webhook. */
const MEDDLING_SALT = 0x3edd1e;
/** One in so many worlds of controllers has a built-in resource as well, and as many have Kubernetes' own migrator. */
const BESIDE_IN = 5;
/** As that of the replicas which serve the webhook. */
const BESIDE_SALT = 0xb51de;
/** In one of so many worlds the conversion of a CRD changes. */
const CONVERSION_IN = 12;
/** As that of the long obstacle. */
const CONVERSION_SALT = 0xc0e7;
/** Of those in which nothing else happens. */
const SILENCE_IN = 3;
const SILENCE_SALT = 0x51e7;
/** When controllers are there already. */
const EARLY = 10;

/** The plan that a seed stands for. */
export function planOf(seed: number): Plan {
  const random = randomFrom(seed);
  const isControlled = oneIn(random, CONTROLLED_IN);
  const isAimed = !oneIn(random, 3);
  const drawn = isControlled ? replicas(random, seed) : migrations(random);
  const { actions: starts, programs: installed, ...installation } = isControlled ? NOTHING : installationOf(seed);
  // Certificates that nobody renews in time end before such a run begins.
  const isLongAgo = !isControlled && installation.lifetimes === undefined && oneIn(random, 10);
  // What is aimed at pages and writes needs some of them.
  const objects: Objects = isAimed && !isControlled ? [8, 36] : [1, 30];
  const kind = !isControlled && oneIn(random, 6) ? builtInPlan(random, objects) : kindPlan(random, "widgets", objects);
  const reencryptions = reencryptionsOf(seed, kind, isControlled);
  const runs = reencryptions.programs(drawn);
  const beside = isControlled ? besideOf(seed) : NOTHING_BESIDE;
  const unmanaged = unmanagedOf(seed, isControlled, (stream, plural) => kindPlan(stream, plural, objects));
  const drawnLimits = withDepartures({
    ...installation,
    seed,
    servers: oneOf(random, [1, 2, 2, 3]),
    access: oneOf(random, ["each", "each", "sampled"]),
    kinds: [
      ...(isControlled && oneIn(random, 4)
        ? [kindPlan(random, "widgets", objects), kindPlan(random, "gadgets", objects)]
        : [kind]),
      ...beside.kinds,
    ],
    ...(!isControlled && oneIn(random, 4) ? { maxInFlight: 3 } : {}),
    ...((!isControlled && oneIn(random, 12)) || beside.hasInTree ? { hasInTree: true } : {}),
    programs: [...runs, ...installed],
    writeEveryMs: spread(random, 2_000, 60_000),
    ageMs: isLongAgo || oneIn(random, isAimed ? 2 : 4) ? OLD_MS + 60_000 : 120_000,
    startAt:
      isControlled && oneIn(random, 2)
        ? EARLY
        : FLIP_AT + (isLongAgo ? OLD_MS : oneOf(random, [5, 100, 2_000, 10_000, 70_000, 300_000])),
  });
  const limits = unmanaged.limits(drawnLimits);
  const { actions: aimed, isAlone } = isAimed ? aimedActions(random, limits) : NO_AIM;
  const isAimedAlone = isAlone || (isAimed && oneIn(random, 2));
  const disturbed = isAimedAlone ? [] : disturbances(random, limits);
  const begun = [...starts(runs.length), ...beginning(random, limits, runs.length)];
  const others = [
    ...sometimes(limits, LONG_OBSTACLE, LONG_OBSTACLE_IN, LONG_OBSTACLE_SALT),
    ...sometimes(limits, WHILE_WRITING, WHILE_WRITING_IN, WHILE_WRITING_SALT),
    ...meddling(limits),
    ...(isAlone ? [] : conversionChange(limits)),
    ...reencryptions.actions(limits),
    ...beside.actions(limits),
    ...departures(limits),
    ...unmanaged.actions(limits),
  ];
  const silence = sometimes(limits, FORGOTTEN_SILENCE, SILENCE_IN, SILENCE_SALT);
  const [alone = []] = [unmanaged.alone(limits), silence, departureAlone(limits)].filter(({ length }) => length > 0);
  const all = alone.length > 0 ? [...begun, ...alone] : [...begun, ...aimed, ...disturbed, ...others];
  const actions = all.filter((action) => isPlausible(limits, action));

  const { startAt: _, ...plan } = limits;
  return { ...plan, actions: actions.toSorted((a, b) => a.at - b.at) };
}

/** At the least and at the most. */
type Objects = readonly [number, number];

function migrations(random: Random): readonly ProgramPlan[] {
  const force = oneIn(random, 6);
  return Array.from({ length: oneOf(random, [1, 1, 2]) }, () => ({ run: "migrate", kind: 0, force }));
}

/** Replicas of the controller; someone may migrate by hand as well. */
function replicas(random: Random, seed: number): readonly ProgramPlan[] {
  const trigger = oneIn(random, 5) ? "off" : "on";
  const serving = oneIn(randomFrom(seed ^ SERVING_SALT), SERVING_IN) ? { servesWebhook: true } : {};
  const replica: ProgramPlan = { run: "controller", kind: 0, force: false, trigger, ...serving };
  const others = oneIn(random, 4) ? migrations(random).slice(0, 1) : [];
  return [...Array.from({ length: oneOf(random, [2, 2, 3]) }, () => replica), ...others];
}

/**
 * Certificates that end within minutes would end while all machines are suspended, which those of a cluster do not. And as long as
 * certificates are kept, the clocks of API servers are wrong in one half of the worlds, and those of the keepers in the other: where both
 * are wrong in the same way nothing is promised (docs/certificates.md).
 */
function isPlausible({ lifetimes, programs, seed }: Limits, { do: name, ...action }: Action): boolean {
  if (name === "suspendAll") return lifetimes === undefined;
  const isInstalled = programs.some(isServing);
  if (name === "jumpServer") return !isInstalled || seed % 2 === 0;
  const { program = 0 } = action as { readonly program?: number };
  const jumping = programs[program];
  return name !== "jump" || jumping === undefined || !isKeeper(jumping) || seed % 2 === 1;
}

/** Whether it issues certificates. */
function isKeeper(program: ProgramPlan): boolean {
  return isServing(program) || program.run === "ensureCertificates" || program.run === "rotateCertificates";
}

/** What a world of controllers has beside its CRDs. */
interface Beside {
  readonly kinds: readonly KindPlan[];
  readonly hasInTree: boolean;
  readonly actions: (limits: Limits) => readonly Action[];
}

const NOTHING_BESIDE: Beside = { kinds: [], hasInTree: false, actions: () => [] };

function besideOf(seed: number): Beside {
  const random = randomFrom(seed ^ BESIDE_SALT);
  const kinds = oneIn(random, BESIDE_IN)
    ? [builtInPlan(random, [1, 12], ["deployments", "volumeattributesclasses"])]
    : [];
  const hasInTree = oneIn(random, BESIDE_IN);
  const names = [...kinds.map(() => "upgrade"), ...(hasInTree ? ["inTreeMigration", "inTreeMigration"] : [])];
  return { kinds, hasInTree, actions: (limits) => names.map((name) => actionOf(random, limits, name)) };
}

function kindPlan(random: Random, plural: string, objects: Objects): KindPlan {
  const versions = oneIn(random, 3) ? VERSIONS : ["v1alpha1", "v1"];
  return {
    plural,
    versions,
    createdIn: oneOf(random, versions.slice(0, -1)),
    objects: objectsOf(random, objects),
    ...(oneIn(random, 10) ? { isConverted: true } : {}),
  };
}

/** Of most worlds few: some have enough that a run adapts how many requests it has under way. */
function objectsOf(random: Random, objects: Objects): number {
  return oneIn(random, 20) ? 150 : Math.floor(spread(random, ...objects));
}

const BUILT_IN_VERSIONS = {
  deployments: ["v1"],
  volumeattributesclasses: ["v1beta1", "v1"],
  secrets: ["v1"],
} as const;

/** A resource whose storage version changes with the release of the API servers, or its key with their configuration. */
function builtInPlan(
  random: Random,
  objects: Objects,
  plurals: readonly (keyof typeof BUILT_IN_VERSIONS)[] = ["deployments", "volumeattributesclasses", "secrets"],
): KindPlan {
  const plural = oneOf(random, plurals);
  const versions = BUILT_IN_VERSIONS[plural];
  return { plural, versions, createdIn: versions[0], objects: objectsOf(random, objects), isBuiltIn: true };
}

/**
 * How most worlds begin: the storage version changes while writes are under way, often on an API server that is slow or late, and
 * the programs start some time after that.
 */
function beginning(random: Random, limits: Limits, runs: number): readonly Action[] {
  const isLate = oneIn(random, 2);
  const slow = {
    at: oneOf(random, [500, 1_900]),
    do: "slow",
    server: serverOf(random, limits),
    ms: 120_000,
    holdMs: 60_000,
    writes: 10,
  };
  const flip = { at: FLIP_AT, do: "flip", kind: kindOf(random, limits), to: "v1", writes: 10 };
  const change = hasCrd(limits) ? flip : actionOf(random, limits, oneOf(random, ["upgrade", "rotateKey"]), FLIP_AT);
  return [
    ...(oneIn(random, 2) ? [slow] : []),
    ...(isLate ? [actionOf(random, limits, "lag", 1_500)] : []),
    change,
    ...Array.from({ length: runs }, (_, program) => ({
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
  return Array.from({ length: count }, () => actionOf(random, limits, oneOf(random, sorts)));
}

/** One in so many worlds has it, by a random stream of its own. */
function sometimes(limits: Limits, aim: Aim, onceIn: number, salt: number): readonly Action[] {
  const random = randomFrom(limits.seed ^ salt);
  const isThere = oneIn(random, onceIn) && aim.suits?.(limits) !== false;
  return isThere ? aim.choose(random, limits) : [];
}

function meddling(limits: Limits): readonly Action[] {
  const random = randomFrom(limits.seed ^ MEDDLING_SALT);
  if (!oneIn(random, MEDDLING_IN)) return [];
  return Array.from({ length: oneOf(random, [1, 1, 2, 3]) }, () => {
    const action = { do: "meddle", ...actionSort("meddle").choose(random, limits) };
    return oneIn(random, 2)
      ? { at: momentOf(random, limits), ...action }
      : after(limits, anyMoment(random, limits), 0, action);
  });
}

function conversionChange(limits: Limits): readonly Action[] {
  const random = randomFrom(limits.seed ^ CONVERSION_SALT);
  // Where the versions changed long ago, nothing but this change is waited for.
  const isThere = oneIn(random, limits.startAt > OLD_MS ? 2 : CONVERSION_IN);
  return isThere && CONVERSION_CHANGE.suits?.(limits) !== false ? CONVERSION_CHANGE.choose(random, limits) : [];
}

interface Aimed {
  readonly actions: readonly Action[];
  /** Whether nothing else is to happen. */
  readonly isAlone: boolean;
}

const NO_AIM: Aimed = { actions: [], isAlone: false };

/** What happens close to the moments that matter: often at the beginning and once more. */
function aimedActions(random: Random, limits: Limits): Aimed {
  const later = Array.from({ length: oneOf(random, [1, 1, 2]) }, () => aimOf(random, limits, AIMS));
  const beginning = oneIn(random, 2) ? aimOf(random, limits, BEGINNINGS) : undefined;
  const isAlone = beginning?.isAlone === true;
  const isFirstAlone = beginning !== undefined && (isAlone || oneIn(random, 2));
  const aims = isFirstAlone ? [beginning] : [beginning, ...later];
  return { actions: aims.flatMap((aim) => aim?.choose(random, limits) ?? []), isAlone };
}

/** `undefined` where none suits. */
function aimOf(random: Random, limits: Limits, aims: readonly Aim[]): Aim | undefined {
  const suited = aims.filter(({ suits }) => suits?.(limits) ?? true);
  const tickets = suited.flatMap((aim) => Array<Aim>(aim.weight ?? 1).fill(aim));
  return tickets[Math.floor(random() * tickets.length)];
}

function actionOf(random: Random, limits: Limits, name: string, at = momentOf(random, limits)): Action {
  const writes = oneIn(random, 2) ? { writes: Math.floor(spread(random, 1, 12)) } : {};
  return { at, do: name, ...writes, ...actionSort(name).choose(random, limits) };
}
