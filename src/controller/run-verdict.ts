import { EncryptionDiffers } from "../old/apiservers/encryption-errors.ts";
import { type ErrorCode, KsvmError, messageOf } from "../errors.ts";
import { ApiError } from "../old/kube/errors.ts";
import { type FailureKind, failureKindOf } from "../old/kube/failure.ts";
import { STUCK_GRACE_MS } from "../old/migrator/beside-in-tree.ts";
import { InTreeAtWork } from "../in-tree/in-tree-guard.ts";
import { DENIAL_PATIENCE_MS } from "../old/retry/patience.ts";
import { withProgramOfFlags } from "./flag-words.ts";
import type { Phase } from "./migration-status.ts";

/** It passes without the user of the migration: it is waited for, however long that takes. */
const WAITS = Number.POSITIVE_INFINITY;
/** The user must act: the migration has failed. */
const FINAL = 0;
/**
 * It may pass, as where an API server has just started or roles are being replaced; or it is a mistake that only a user
 * can correct. Milliseconds.
 */
const GRACE_MS = 900_000;

/** Milliseconds that a failed request is waited for. */
const OF_REQUEST: Readonly<Record<FailureKind, number>> = {
  // No answer, 3xx, 408, 425, 429, 500, 502, 503, 504, "failed calling webhook", and credentials that cannot be renewed.
  transient: WAITS,
  expired: WAITS,
  conflict: WAITS,
  // A namespace or an API group may come back, as after a restore or while API servers of two versions serve.
  gone: GRACE_MS,
  unserved: GRACE_MS,
  denied: GRACE_MS,
  rejected: FINAL,
};

/** An error that stands for a failed request is judged by that request where its `cause` tells which. */
type ByCause = { readonly byCause: true; readonly otherwise: number };

/** Milliseconds that an error which ended a run is waited for. */
const OF_CODE: Readonly<Record<ErrorCode, number | ByCause>> = {
  RetryBudgetExceeded: { byCause: true, otherwise: WAITS },
  FreezeNotProven: { byCause: true, otherwise: FINAL },
  NotConverged: { byCause: true, otherwise: FINAL },

  ServerUnreachable: WAITS,
  // The CA may be changing.
  ServerUntrusted: WAITS,
  ApiServerMissing: WAITS,
  AlreadyMigrating: WAITS,
  ForeignFreeze: WAITS,
  OwnershipLost: WAITS,
  Conflict: WAITS,
  // The run begins again, and looks at every object again.
  WatchFailed: WAITS,
  ConversionChanged: WAITS,

  KubeconfigInvalid: GRACE_MS,

  ManifestInvalid: GRACE_MS,
  Unauthorized: GRACE_MS,
  Forbidden: GRACE_MS,
  NotFound: GRACE_MS,
  VersionNotServed: GRACE_MS,
  PruneFailed: GRACE_MS,
  CleanupFailed: GRACE_MS,
  // Until all API servers were restarted with an EncryptionConfiguration.
  EncryptionUnknown: GRACE_MS,
  // A time service may have ended correcting the clock by then. Each attempt freezes the CRD for most of its time.
  ClockJumps: GRACE_MS,
  StorageMigratingStuck: STUCK_GRACE_MS,
  // Proven by the CRD, which is read from etcd, and by discovery, which an API server that has just started fills.
  ResourceNotFound: DENIAL_PATIENCE_MS,
  ResourceAmbiguous: DENIAL_PATIENCE_MS,

  ApiRequestFailed: FINAL,
  AggregatedApi: FINAL,
  AnnotationInvalid: FINAL,
  ServerUnsupported: FINAL,
  ResourceNotMigratable: FINAL,
  FreezeLifted: FINAL,
  StorageVersionChanged: FINAL,
  CrdReplaced: FINAL,
  OtherMigratorActive: FINAL,
  CertificateSecretUnusable: FINAL,
  RotationStuck: FINAL,
  ClocksDisagree: FINAL,
  OutputFailed: FINAL,
  ListenFailed: FINAL,
  RepairStopped: FINAL,
  NodeUnsupported: FINAL,
  Usage: FINAL,
  Interrupted: FINAL,
  Internal: FINAL,
};

/** What an error that ended a run means for its migration. */
export interface Verdict {
  /** One word, as the condition has it. */
  readonly reason: string;
  readonly message: string;
  /**
   * Milliseconds for which the migration waits and is tried again: 0 where it has failed, `Infinity` where it waits for as
   * long as it takes. {@link Failing} says what counts.
   */
  readonly waitMs: number;
}

/**
 * What is final and what is waited for, for the migrations of users and of the trigger alike. The trigger creates another
 * one for each of its own that failed, later each time; for one of a user no controller does that. docs/errors.md has this table
 * in words.
 */
export function verdictOf(error: unknown): Verdict {
  const message = withProgramOfFlags(messageOf(error));
  if (error instanceof InTreeAtWork) {
    return { reason: "InTreeMigration", message, waitMs: WAITS };
  }
  if (error instanceof EncryptionDiffers) {
    return { reason: error.code, message, waitMs: WAITS };
  }
  return { reason: error instanceof KsvmError ? error.code : "Internal", message, waitMs: waitMsOf(error) };
}

function waitMsOf(error: unknown): number {
  const waitMs = waitMsOfRequest(error);
  if (waitMs !== undefined) {
    return waitMs;
  }
  const wait = OF_CODE[error instanceof KsvmError ? error.code : "Internal"];
  if (typeof wait === "number") {
    return wait;
  }
  return waitMsOfRequest((error as KsvmError).cause) ?? wait.otherwise;
}

function waitMsOfRequest(error: unknown): number | undefined {
  const kind = failureKindOf(error);
  // An API server that refuses the credentials says so to every request, and one of an aggregated API may do so for good.
  const isRefused = error instanceof ApiError && error.status === 401;
  return kind === undefined ? undefined : isRefused && kind === "transient" ? GRACE_MS : OF_REQUEST[kind];
}

/** The phase of a migration whose run ended so, after `spentMs` milliseconds count toward the limit of its wait. */
export function phaseAfterError({ reason, message, waitMs }: Verdict, spentMs: number): Phase {
  return { type: spentMs < waitMs ? "Waiting" : "Failed", reason, message };
}

/**
 * What counts at the most before the first error of its kind, in milliseconds: the pause after the error before, a minute at
 * the most, and an attempt that ends soon. One that ran for longer did not fail until then.
 */
const BEFORE_NEW_KIND_MS = 120_000;

/**
 * The errors that a migration ends its runs with, one after the other. All times are of one monotonic clock, in milliseconds.
 * Toward the limit of a wait counts the time between two errors in a row that wait no longer than that, whatever their
 * reasons: an outage that is waited for as long as it takes uses no limit up, and errors that take turns start none over.
 * Before the first error of its kind (its reason and how long it is waited for) at most {@link BEFORE_NEW_KIND_MS} count, since
 * the attempt may have worked until then. Before an error that comes again all of it counts, also after a long attempt and
 * after others in between: what causes it has lasted. So a migration that gets no further ends, as there are few kinds.
 */
export class Failing {
  #before: { readonly verdict: Verdict; readonly at: number } | undefined;
  /** Milliseconds that count toward each limit, by that limit. */
  readonly #spent = new Map<number, number>();
  /** The kinds of errors so far. */
  readonly #kinds = new Set<string>();

  /**
   * The phase after one more error.
   * @returns `isNew` where the reason is another one than before, or stands for another kind of failure
   */
  failed(error: unknown, now: number): { readonly phase: Phase; readonly isNew: boolean } {
    const verdict = verdictOf(error);
    const { waitMs, reason } = verdict;
    const { verdict: last, at } = this.#before ?? { verdict: undefined, at: now };
    const kind = `${reason} ${waitMs}`;
    const betweenMs = this.#kinds.has(kind) ? now - at : Math.min(now - at, BEFORE_NEW_KIND_MS);
    this.#kinds.add(kind);
    for (const [limitMs, spentMs] of this.#spent) {
      if (Math.max(last?.waitMs ?? 0, waitMs) <= limitMs) {
        this.#spent.set(limitMs, spentMs + betweenMs);
      }
    }
    const spentMs = this.#spent.get(waitMs) ?? 0;
    this.#spent.set(waitMs, spentMs);
    this.#before = { verdict, at: now };
    const isNew = last?.reason !== reason || last.waitMs !== waitMs;
    return { phase: phaseAfterError(verdict, spentMs), isNew };
  }

  /** Says that the migration got further than ever before. */
  progressed(): void {
    this.#before = undefined;
    this.#spent.clear();
    this.#kinds.clear();
  }
}
