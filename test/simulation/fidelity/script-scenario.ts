import type { Play } from "./play.ts";

/** One named part of the script: the same requests, in the same order, in each world. */
export interface Scenario {
  readonly name: string;
  /** It does what the others must not see, such as a compaction, so that it runs alone after them. @default false */
  readonly alone?: boolean;
  readonly play: (play: Play) => Promise<void>;
}
