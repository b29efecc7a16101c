import type { MigrationEvent } from "../../../src/migrator/events.ts";
import type { MigrationResult } from "../../../src/migrator/result.ts";
import type { KindPlan } from "../plan.ts";

/** A `ksvm migrate` that starts. */
export interface StartedMigration {
  /** Of its process, and its user. */
  readonly name: string;
  readonly kind: KindPlan;
  readonly force: boolean;
}

/** Follows what one `ksvm migrate` tells. */
export interface Witness {
  told(event: MigrationEvent): void;
  /**
   * @param result `undefined` where an error or a crash ended it
   * @param how in words: `crash`, the outcome, or the message of the error
   */
  ended(result: MigrationResult | undefined, how: string): void;
}
