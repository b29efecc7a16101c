import type { MigrationEvent } from "../../../src/migrator/events.ts";
import type { MigrationResult } from "../../../src/migrator/result.ts";
import type { KindPlan } from "../plan.ts";

/** A `ksvm migrate` or `ksvm reencrypt` that starts. */
export interface StartedMigration {
  /** Of its process, and its user. */
  readonly name: string;
  readonly kind: KindPlan;
  readonly force: boolean;
  /** Whether it re-encrypts. @default false */
  readonly reencrypts?: boolean | undefined;
  /** Whether it is told the addresses of all API servers that there are when it starts. @default false */
  readonly namesServers?: boolean | undefined;
}

/** Follows what one of them tells. */
export interface Witness {
  told(event: MigrationEvent): void;
  /**
   * @param result `undefined` where an error or a crash ended it
   * @param how in words: `crash`, the outcome, or the message of the error
   */
  ended(result: MigrationResult | undefined, how: string): void;
}
