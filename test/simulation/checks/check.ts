import type { World } from "../world/world.ts";

/** Something that must hold in every simulated world. It reports to `world.violate()`. */
export interface Check {
  readonly name: string;
  /** Called once all disturbances are over, and all programs are at rest. */
  finish?(): Promise<void>;
}

/** Begins a check of a world that is set up, before anything happens to it. */
export type BeginCheck = (world: World) => Check;
