import type { ApiServerOptions } from "../apiservers/find.ts";
import type { ApiServerEvent } from "../apiservers/settle.ts";
import type { Guard } from "../freeze/rule.ts";

/** An object that could not be rewritten, and why. */
export interface ObjectFailure {
  readonly namespace?: string;
  readonly name: string;
  readonly reason: string;
}

/** What became of the objects. */
export interface Tally {
  /** Objects that there are, as far as the API server has counted them. After a resume, those that were left. */
  total: number;
  /** Written, since they were stored in another version. */
  rewritten: number;
  /** Stored in the storage version already. */
  current: number;
  /** Written by others since the watermark, so in the storage version. */
  newer: number;
  /** Deleted meanwhile. */
  gone: number;
  failed: number;
  /** The first hundred that failed. */
  readonly failures: ObjectFailure[];
  /** Objects whose spec or managedFields are others than they should be: a mutating webhook may have changed them. */
  changed: number;
  /** How many of the objects that this attempt looked at have managedFields that name another version, by version. */
  readonly fieldVersions: Record<string, number>;
}

/** How a run behaves. */
export interface MigrateOptions extends ApiServerOptions {
  /** Milliseconds to wait for writes in an earlier version. @default DEFAULT_SETTLE_MS */
  readonly settleMs?: number;
  /** @default kube-system */
  readonly leaseNamespace?: string;
  /** Unique to this process, such as the host name and a random part. Each run adds a random part of its own. */
  readonly identity: string;
  /** What the migration is for. A checkpoint of another purpose is not resumed. @default "migrate" */
  readonly purpose?: string;
  /** Rewrites the objects of a CRD that is clean all the same. @default false */
  readonly force?: boolean;
  /** Tries every write, and changes nothing. @default false */
  readonly dryRun?: boolean;
  /** @default DEFAULT_MAX_IN_FLIGHT */
  readonly maxInFlight?: number;
  /** @default no limit */
  readonly maxQps?: number;
  /**
   * Milliseconds without progress after which a run gives up on a webhook or an API server, and no longer waits for
   * another migrator. @default 900,000
   */
  readonly maxIdleMs?: number;
  readonly signal: AbortSignal;
  /** Must not throw. */
  readonly onEvent: (event: MigrationEvent, resource: string) => void;
  /** Told how each of several runs ended, once it has: others may go on. Must not throw. @default nobody is told */
  readonly onEnd?: (end: MigrationEnd) => void;
}

/** What a run tells those who watch it. */
export type MigrationEvent =
  | ApiServerEvent
  /** A webhook or another migrator keeps the run from going on. Nothing is frozen. */
  | { readonly type: "waiting"; readonly for: "webhook" | "inTree"; readonly reason: string }
  | { readonly type: "frozen"; readonly storageVersion: string; readonly guard: Guard; readonly apiServers: number }
  /** An earlier run had rewritten what lies before; that is not counted again. */
  | { readonly type: "resumed"; readonly watermark: string }
  | { readonly type: "progress"; readonly tally: Readonly<Tally>; readonly continueToken?: string | undefined }
  /** The run begins again at step 1. */
  | { readonly type: "beginsAgain"; readonly reason: string }
  | { readonly type: "pruned"; readonly storedVersions: readonly string[]; readonly removed: readonly string[] }
  | { readonly type: "unfrozen" }
  | { readonly type: "warning"; readonly message: string };

/** How a run ended. */
export interface MigrationResult {
  /** `plural.group`. */
  readonly resource: string;
  /**
   * - `migrated`: every object is stored in the storage version; storedVersions of a CRD is pruned
   * - `nothing-to-do`: storedVersions is the storage version alone already
   * - `incomplete`: some objects could not be rewritten; nothing was pruned
   * - `dry-run`: every object was tried, nothing was changed
   */
  readonly outcome: "migrated" | "nothing-to-do" | "incomplete" | "dry-run";
  readonly storageVersion?: string;
  /** `status.storedVersions` at the end. */
  readonly storedVersions?: readonly string[];
  /** What was proven to be the same all the time: `uid/generation` of a CRD, or hash, processes and evidence. */
  readonly epoch?: string;
  /** `uid/generation` of the CRD whose objects were rewritten without a freeze. */
  readonly crd?: string;
  readonly tally?: Readonly<Tally>;
}

/** How the run of one of several names ended. */
export type MigrationEnd =
  | { readonly name: string; readonly result: MigrationResult }
  | { readonly name: string; readonly error: unknown };

export function newTally(): Tally {
  return {
    total: 0,
    rewritten: 0,
    current: 0,
    newer: 0,
    gone: 0,
    failed: 0,
    failures: [],
    changed: 0,
    fieldVersions: {},
  };
}
