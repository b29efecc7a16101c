import type { SimProcess } from "../world/sim-process.ts";

/** A program of ksvm that runs in a world. */
export interface Program {
  readonly process: SimProcess;
  /** Whether nothing more is to come of it, as long as nobody disturbs it: it ended, or waits for work. */
  readonly isAtRest: boolean;
  /** How it ended, in words; `undefined` while it runs. */
  readonly endText: string | undefined;
  /** Whether it ended, not by a crash, and did not say that it left a freeze. @default no */
  readonly hasCleanedUp?: boolean;
  /** Asks it to end, as by SIGTERM. */
  interrupt(): void;
}
