import type { LeftOut, Survey } from "./survey.ts";

/** A resource that needs a migration and has none under way, and why. */
export interface Waiting {
  readonly name: string;
  readonly reason: string;
}

/** What a trigger can tell of itself. */
export interface TriggerReport {
  /** When discovery was last read as a whole, in milliseconds since the Unix epoch; missing before that. */
  readonly polledAt?: number;
  readonly leftOut: readonly LeftOut[];
  readonly unavailable: Survey["unavailable"];
  readonly waiting: readonly Waiting[];
}
