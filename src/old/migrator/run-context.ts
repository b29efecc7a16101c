import type { CrdMode } from "../../api/migration.ts";
import type { Clock } from "../../clock.ts";
import type { ApiClient } from "../kube/client.ts";
import type { GuardChoice } from "../freeze/guard.ts";
import type { SeenServers } from "../apiservers/seen-servers.ts";
import type { SettledChanges } from "../apiservers/settled-changes.ts";
import type { Arrivals, CountedArrivals } from "../apiservers/arrivals.ts";
import type { EncryptionEvidence } from "../apiservers/encryption-evidence.ts";
import type { ApiServers } from "../apiservers/api-servers.ts";
import type { ResumePoint } from "./rewrite/checkpoint.ts";
import type { ObjectReads } from "./rewrite/rewrite-context.ts";
import type { CleanupPatience } from "../retry/cleanup.ts";
import type { EventSink } from "./events.ts";
import type { Pacer } from "../retry/pacer.ts";
import type { Retrier } from "../retry/retrier.ts";
import type { Advance, RunBudget } from "../retry/run-budget.ts";

/**
 * What a run on a CRD does to managedFields that name another version than the storage version:
 *
 * - `auto`: has them name the storage version where the run has other work to do and no webhook converts the objects
 * - `keep`: leaves them as they are
 * - `convert`: does as `auto`, also where there is no other work, and refuses a CRD whose objects a webhook converts
 */
export const FIELDS_MODES = ["auto", "keep", "convert"] as const;
export type FieldsMode = (typeof FIELDS_MODES)[number];

/** The settings of a run that a user may choose. */
export interface MigrationOptions {
  readonly settleMs: number;
  /** Milliseconds for which an API server that has begun to end takes requests. @default 0 */
  readonly shutdownDelayMs?: number;
  readonly pageSize: number;
  readonly guard: GuardChoice;
  /** Rewrites a resource that is clean already. */
  readonly force: boolean;
  readonly dryRun: boolean;
  /** Milliseconds that every API server may take to follow a change of the storage version. */
  readonly convergenceTimeoutMs: number;
  /** Milliseconds that the guard may take to come into force. */
  readonly proofTimeoutMs: number;
  /** Milliseconds without progress after which the freeze is lifted until the run can continue. */
  readonly maxFreezeIdleMs: number;
  /** The namespace of the run's Lease. */
  readonly leaseNamespace: string;
  readonly crdMode: CrdMode;
  /** What objects are written through. @default the objects themselves */
  readonly subresource?: "status" | undefined;
  /** What becomes of managedFields that name another version than the storage version. @default "auto" */
  readonly managedFields?: FieldsMode;
}

/** What every part of a run is handed. */
export interface RunContext {
  readonly client: ApiClient;
  /** Finds every API server that may live; throws MissingApiServer where one of them cannot be asked. */
  readonly findApiServers: (signal: AbortSignal) => Promise<ApiServers>;
  /** Which of them came and went in between, while that is watched. */
  readonly arrivals: Arrivals;
  /** The changes of CRDs whose late writes a run of this process has waited for. @default none is known */
  readonly settled?: SettledChanges;
  /** What this run sees of API servers that are silent or behind, for itself and the runs that follow. @default it is forgotten */
  readonly seen?: Pick<
    SeenServers,
    "silent" | "tookOver" | "noting" | "followed" | "lagOf" | "settledFor" | "wereSilentWithin" | "mayLateWriteCome"
  >;
  /** Whether runs follow that know what this one saw of API servers, or take for a silence whatever they do not, as those of a controller. @default false */
  readonly isRemembered?: boolean;
  /** Whether a user named them: then they need not be found. @default false */
  readonly areServersNamed?: boolean;
  readonly clock: Clock;
  readonly retrier: Retrier;
  /** The budget of the run that `retrier` keeps to: it is told how far the run is. @default none */
  readonly budget?: RunBudget;
  readonly pacer: Pacer;
  /** Whether it rewrites as fast as the API server allows, and lets other clients wait. @default false */
  readonly isUrgent?: boolean;
  /** Unique to this run: host name and a random part. */
  readonly identity: string;
  /** Names the migration that this run is a part of; a later run with the same purpose may resume its checkpoint. */
  readonly purpose: string;
  readonly options: MigrationOptions;
  /** What a user could do about objects whose spec is rejected. @default nothing is known */
  readonly adviceOnRejection?: string | undefined;
  /** What tells how the API servers encrypt, where the run is to re-encrypt. @default that is not looked at */
  readonly encryption?: EncryptionEvidence | undefined;
  /** Whether the holder of a Lease is known to be dead, so that the Lease need not be watched. @default none is */
  readonly isDead?: (holder: string) => boolean;
  /** Throws where the run may write nothing but what ends it: its replica does not lead any more. @default it always may */
  readonly assertLeading?: () => void;
  readonly emit: EventSink;
  /** Whether other migrations wait for the place of this one. @default none does */
  readonly isPlaceWanted?: () => boolean;
  /** Waits until a run that has waited may go on; an error of it ends the run. @default it may at once */
  readonly awaitTurn?: () => Promise<void>;
  /** Told of every page that is done, and waited for; an error of it ends the run. @default none */
  readonly onPageDone?: (point: ResumePoint) => Promise<void>;
  /**
   * Told what the result of a run without a freeze rests on. The caller sees to it then that no API server came or went until after
   * the last write, and believes the result only after that. @default the run waits for that itself
   */
  readonly onRested?: (rested: CountedArrivals) => void;
  /** Hears of each read of objects that the run writes next. @default none */
  readonly reads?: ObjectReads;
  /** Told of every object that is done. It must not throw. @default none */
  readonly onAdvance?: (advance: Advance) => void;
  /** How long undoing is tried while the API server is down. @default as of {@link CleanupContext} */
  readonly cleanupPatience?: CleanupPatience;
  /** Aborted when the run must end, with the reason. */
  readonly signal: AbortSignal;
}
