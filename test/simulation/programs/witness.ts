import type { MigrationEvent } from "../../../src/migrator/events.ts";
import type { MigrationResult } from "../../../src/migrator/result.ts";
import type { Verification } from "../../../src/verify/verification.ts";
import type { KindPlan, ProgramPlan } from "../plan.ts";

/** What a user of `ksvm reencrypt` chooses. */
export type ReencryptionPlan = Pick<ProgramPlan, "expectsConfig" | "resumes">;

/** A `ksvm migrate`, `ksvm reencrypt` or `ksvm verify` that starts. */
export interface StartedMigration {
  /** Of its process, and its user. */
  readonly name: string;
  readonly kind: KindPlan;
  readonly force: boolean;
  /** What it is to re-encrypt with. @default it does not re-encrypt */
  readonly reencryption?: ReencryptionPlan | undefined;
  /** Whether it is a `ksvm verify`, which is told what a re-encryption is. @default false */
  readonly verifies?: boolean | undefined;
  /** Whether it is told the addresses of all API servers that there are when it starts. @default false */
  readonly namesServers?: boolean | undefined;
}

/** Follows what one of them tells. */
export interface Witness {
  told(event: MigrationEvent): void;
  /**
   * @param result `undefined` where an error or a crash ended it, and of a `ksvm verify`
   * @param how in words: `crash`, the outcome, or the message of the error
   */
  ended(result: MigrationResult | undefined, how: string): void;
  /** A `ksvm verify` is about to end with this. */
  verified?(verification: Verification): void;
}
