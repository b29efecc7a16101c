import type { Converted } from "./rewrite/convert-fields.ts";
import type { Settled } from "./rewrite/rewrite-pass.ts";
import type { SeenState } from "./rewrite/seen-state.ts";

/** Where an attempt stood at its last checkpoint: for the next one of the same run, which counts on from there. */
interface Left extends Omit<Settled, "point"> {
  readonly checkpoint: string;
}

/** What the attempts of one run know of each other. */
export interface RunMemory {
  /**
   * The checkpoints that this run wrote last, or that it knows the earlier one wrote; two while it is not known whether a write
   * arrived. Any other text on the Lease is that of a client that may have made it up, or brought one back that is void.
   */
  known?: readonly string[];
  left?: Left | undefined;
  /** Objects whose managedFields were converted, where they are to be. */
  converted?: Converted | undefined;
  objectsSeen?: SeenState | undefined;
  /** Lifts the freeze of the last attempt, where that may not have worked. */
  liftAgain?: ((signal: AbortSignal) => Promise<void>) | undefined;
}
