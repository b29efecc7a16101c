import type { World } from "../world/world.ts";
import { checkEnd } from "./end.ts";
import { checkFreezes } from "./freezes.ts";
import { checkLeases } from "./leases.ts";
import { checkLoad } from "./load.ts";
import { checkObjects } from "./objects.ts";
import { checkS1 } from "./s1.ts";
import { checkTold } from "./told.ts";

/** Begins to follow a world that is set up. @returns what is done once all disturbances are over, and all programs are at rest */
type Check = (world: World) => (() => Promise<void>) | void;

/** What must hold in every simulated world. Where one write breaks several things, the first is what is told. */
export const CHECKS: readonly Check[] = [
  checkS1,
  checkObjects,
  checkTold,
  checkFreezes,
  checkLeases,
  // The end starts programs, which these follow as well.
  checkEnd,
  checkLoad,
];
