import type { Random } from "../../chaos/random.ts";
import type { Action, Plan } from "../plan.ts";
import type { World } from "../world/world.ts";

/** What is known of a plan while its actions are chosen. */
export interface Limits extends Omit<Plan, "actions"> {
  /** When the first program starts, in milliseconds since the world was set up. */
  readonly startAt: number;
}

/**
 * One sort of thing that happens to a world: how it is chosen, and how it is played. What it is made of has to be plain JSON, so that
 * a plan can be kept in a file.
 */
export interface ActionSort<Parameters extends object = object> {
  readonly name: string;
  /** How likely it is beside the others; 1 where it is not given. */
  readonly weight?: number;
  /** Whether worlds of this sort have it at all; all have where it is not given. */
  readonly suits?: (limits: Limits) => boolean;
  /** Chooses one. `at` may say when it happens; else that is chosen as well. */
  choose(random: Random, limits: Limits): Parameters & { readonly at?: number };
  /** Begins it. Where it lasts, its parameter `ms` says how long, in milliseconds. */
  play(world: World, parameters: Parameters & Pick<Action, "at">): void | Promise<void>;
}

/** Keeps the parameters' type to the one sort that has them. */
export function sort<Parameters extends object>(sort: ActionSort<Parameters>): ActionSort {
  return sort;
}
