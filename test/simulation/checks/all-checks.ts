import type { BeginCheck } from "./check.ts";
import { StoredVersionsCheck } from "./stored-versions-check.ts";
import { UndisturbedRunCheck } from "./undisturbed-run-check.ts";

/** What must hold in every simulated world. Those that let more happen at the end come last. */
export const CHECKS: readonly BeginCheck[] = [
  (world) => new StoredVersionsCheck(world),
  (world) => new UndisturbedRunCheck(world),
];
