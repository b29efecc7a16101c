import type { Random } from "../../chaos/random.ts";
import type { Action, Plan } from "../plan.ts";
import { oneIn, spread } from "../world/random.ts";
import type { World } from "../world/world.ts";

/** What is known of a plan while its actions are chosen. */
export interface Limits extends Omit<Plan, "actions"> {
  /** When the first program starts, in milliseconds since the world was set up. */
  readonly startAt: number;
}

/** One sort of thing that happens to a world. What it is made of has to be plain JSON, so that a plan can be kept in a file. */
export interface ActionSort<Parameters extends object = object> {
  readonly name: string;
  /** How likely it is beside the others. @default 1 */
  readonly weight?: number;
  /** Whether worlds of this sort have it at all. @default all have */
  readonly suits?: (limits: Limits) => boolean;
  choose(random: Random, limits: Limits): Parameters;
  /** Begins it. Where it lasts, its parameter `ms` says how long, in milliseconds. */
  play(world: World, parameters: Parameters & Pick<Action, "at">): void | Promise<void>;
}

/** Keeps the parameters' type to the one sort that has them. */
export function sort<Parameters extends object>(sort: ActionSort<Parameters>): ActionSort {
  return sort;
}

/** How long disturbances go on after the programs have started, at the most and roughly. */
const DISTURBED_MS = 600_000;

/** Before and after the programs start, soon as often as later: most of a run is its first minutes. */
export function momentOf(random: Random, { startAt }: Limits): number {
  return Math.round(oneIn(random, 4) ? spread(random, 10, startAt) : startAt + spread(random, 10, DISTURBED_MS / 3));
}

/** Milliseconds. */
export function lastingOf(random: Random): number {
  return Math.round(spread(random, 50, DISTURBED_MS / 3));
}

/** Milliseconds of an obstacle that a run has to wait for: one in 20 lasts for longer than a run keeps its freeze or waits at all. */
export function obstacleLastingOf(random: Random): number {
  return oneIn(random, 20) ? Math.round(300_000 + random() * 900_000) : lastingOf(random);
}

/** Milliseconds that a clock jumps by, forward or back: minutes. */
export function jumpOf(random: Random): number {
  return Math.round(spread(random, 100, 600_000)) * (oneIn(random, 2) ? 1 : -1);
}

/** An index of `plan.kinds`. */
export function kindOf(random: Random, { kinds }: Limits): number {
  return Math.floor(random() * kinds.length);
}

/** Whether a world has a CRD to edit. */
export function hasCrd({ kinds }: Pick<Limits, "kinds">): boolean {
  return kinds.some(({ isBuiltIn }) => isBuiltIn !== true);
}

/** Whether a world has a controller. */
export function hasController({ programs }: Pick<Limits, "programs">): boolean {
  return programs.some(({ run }) => run === "controller");
}

/** A slot of an API server. */
export function serverOf(random: Random, { servers }: Limits): number {
  return Math.floor(random() * servers);
}

/** A slot of a program. */
export function programOf(random: Random, { programs }: Limits): number {
  return Math.floor(random() * programs.length);
}
