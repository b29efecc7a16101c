import type { CustomResourceDefinition } from "../../../api/crd.ts";
import { storageVersionOf } from "../../../api/crd.ts";
import { type KeptFollowing, keptFollowingIn } from "./counted-objects.ts";
import type { Counts } from "./counts.ts";
import { formatDigested, parseDigested } from "./digested-text.ts";
import type { ListPositionState } from "./list-position.ts";
import { type ResourceState, resourceStateIn } from "./seen-state.ts";

/**
 * How far a run was at its checkpoint, as users see it. Counts rest on it and nothing else: no object that could not be
 * rewritten lies before a continue token, so none is counted here.
 */
export interface EarlierProgress {
  /** `newer` are those that the run wrote as well: the next one finds them written since the watermark. */
  readonly counts: Pick<Counts, "current" | "gone" | "newer">;
  readonly position: ListPositionState;
}

/** Where a run stands, as it is kept in the cluster after every page. */
export interface Checkpoint {
  /** The migration that it belongs to, as {@link checkpointOwnerOf} names it: no other one may resume there. */
  readonly migration: string;
  /** The CRD that it belongs to, in the state that the watermark holds for. */
  readonly crdUid: string;
  readonly generation: number;
  readonly storageVersion: string;
  /**
   * The API servers that were asked, as `fingerprintOf` has them: another one may have written an old version since; and all else that
   * the evidence of the freeze rests on.
   */
  readonly apiServers: string;
  /** Milliseconds that late writes were waited for at the least, before the watermark. */
  readonly settleMs: number;
  /** Milliseconds that were waited on top of that for API servers that had left. */
  readonly shutdownDelayMs: number;
  /** resourceVersion of the first consistent list: objects written later are in the storage version. */
  readonly watermark: string;
  /**
   * What the run had seen of the objects by then: a restore of etcd may take back what it wrote and leave the Lease as it is. No run goes
   * on from a checkpoint without it.
   */
  readonly seen?: ResourceState | undefined;
  /** Where the next page begins; missing where the next run begins at the first page. */
  readonly continueToken?: string;
  /** What the page before said of the objects behind it; missing where the API server does not count. */
  readonly following?: KeptFollowing;
  /** Missing where the next run begins at the first page, and counts every object itself. */
  readonly progress?: EarlierProgress;
}

/** What a checkpoint is compared with, besides the CRD: what the run that wants to resume would write into its own. */
export type ResumeExpectation = Pick<Checkpoint, "migration" | "apiServers" | "settleMs" | "shutdownDelayMs">;

/** What a run may take from an earlier one. */
export interface ResumePoint {
  readonly watermark: string;
  readonly continueToken?: string;
  readonly following?: KeptFollowing;
}

/** The same, how far the earlier run was, and what it had seen. */
export interface EarlierRun extends ResumePoint {
  readonly seen?: ResourceState;
  readonly progress?: EarlierProgress;
}

/**
 * The migration that a run's checkpoints belong to. A forced run stands for itself: it exists to write every object
 * again, mostly with another encryption key, and neither the CRD nor its storageVersionHash shows that the key changed.
 * @param run `purpose` is the same for all runs of one migration, `identity` is unique to this run
 */
export function checkpointOwnerOf(run: {
  readonly purpose: string;
  readonly identity: string;
  readonly options: { readonly force: boolean };
}): string {
  return run.options.force ? `${run.purpose}, forced, by ${run.identity}` : run.purpose;
}

/** @param apiServers as a {@link Checkpoint} has them, of those that live now */
export function resumeExpectationOf(
  run: Parameters<typeof checkpointOwnerOf>[0] & {
    readonly options: { readonly settleMs: number; readonly shutdownDelayMs?: number };
  },
  apiServers: string,
): ResumeExpectation {
  const { settleMs, shutdownDelayMs = 0 } = run.options;
  return { migration: checkpointOwnerOf(run), apiServers, settleMs, shutdownDelayMs };
}

/**
 * The text of a checkpoint, with a digest over its fields: one that was written or changed by hand is not believed. A
 * token put in by hand would leave objects out, and so would a watermark that is too low.
 */
export function formatCheckpoint(checkpoint: Checkpoint): string {
  return formatDigested(fieldsOf(checkpoint));
}

/**
 * What a checkpoint is good for: nothing (`undefined`) where it is not whole, belongs to another migration, or not to
 * this CRD in this generation with this storage version, or other API servers live now, or its run waited for late writes for a shorter
 * time than this one: one that landed after that has a resourceVersion beyond the watermark; or it does not say what its run had seen.
 */
export function resumePointOf(
  text: string | undefined,
  crd: CustomResourceDefinition,
  expected: ResumeExpectation,
): EarlierRun | undefined {
  const checkpoint = parseDigested(text, fieldsOf);
  const matches =
    checkpoint?.crdUid === crd.metadata.uid &&
    checkpoint.migration === expected.migration &&
    checkpoint.generation === crd.metadata.generation &&
    checkpoint.storageVersion === storageVersionOf(crd) &&
    checkpoint.apiServers === expected.apiServers &&
    hasWaitedFor(checkpoint, expected);
  return matches ? earlierRunIn(checkpoint) : undefined;
}

function earlierRunIn({ continueToken, following, progress, seen, watermark }: Checkpoint): EarlierRun | undefined {
  if (seen === undefined) {
    return undefined;
  }
  const further = {
    ...(following === undefined ? {} : { following }),
    ...(progress === undefined ? {} : { progress }),
  };
  return continueToken === undefined ? { watermark, seen } : { watermark, continueToken, seen, ...further };
}

function hasWaitedFor(checkpoint: ResumeExpectation, { settleMs, shutdownDelayMs }: ResumeExpectation): boolean {
  return checkpoint.settleMs >= settleMs && checkpoint.shutdownDelayMs >= shutdownDelayMs;
}

/** How far a checkpoint is, to be shown; `undefined` where it is at the first page, or not one of this CRD as it is now. */
export function shownProgressOf(
  text: string | undefined,
  crd: CustomResourceDefinition,
): EarlierProgress["counts"] | undefined {
  const checkpoint = parseDigested(text, fieldsOf);
  // To be shown, that of any migration will do.
  return checkpoint === undefined ? undefined : resumePointOf(text, crd, checkpoint)?.progress?.counts;
}

/** How far a run is after a page, for a checkpoint with a continue token. */
export function earlierProgressOf(
  { current, gone, migrated, newer }: Counts,
  position: ListPositionState,
): EarlierProgress {
  return { counts: { current, gone, newer: newer + migrated }, position };
}

function fieldsOf(checkpoint: Checkpoint): Checkpoint {
  const { migration, crdUid, generation, storageVersion, apiServers, continueToken } = checkpoint;
  const { settleMs, shutdownDelayMs, watermark } = checkpoint;
  const fields = { migration, crdUid, generation, storageVersion, apiServers, settleMs, shutdownDelayMs, watermark };
  const progress = progressIn(checkpoint.progress);
  const seen = resourceStateIn(checkpoint.seen);
  const following = keptFollowingIn(checkpoint.following);
  return {
    ...fields,
    ...(seen === undefined ? {} : { seen }),
    ...(continueToken === undefined ? {} : { continueToken }),
    ...(following === undefined ? {} : { following }),
    ...(progress === undefined ? {} : { progress }),
  };
}

/** What was read from the cluster as a progress; `undefined` where it is no whole one. */
export function progressIn(value: unknown): EarlierProgress | undefined {
  const { counts, position } = (value ?? {}) as {
    counts?: Record<string, unknown>;
    position?: Record<string, unknown>;
  };
  const { current, gone, newer } = counts ?? {};
  const at = positionIn(position ?? {});
  const isWhole = isCount(current) && isCount(gone) && isCount(newer);
  return isWhole && at !== undefined ? { counts: { current, gone, newer }, position: at } : undefined;
}

function positionIn({ listed, last, listedTo }: Record<string, unknown>): ListPositionState | undefined {
  if (!isCount(listed) || !isName(last) || !isName(listedTo)) {
    return undefined;
  }
  return { listed, ...(last === undefined ? {} : { last }), ...(listedTo === undefined ? {} : { listedTo }) };
}

function isCount(value: unknown): value is number {
  return Number.isSafeInteger(value) && (value as number) >= 0;
}

function isName(value: unknown): value is string | undefined {
  return value === undefined || typeof value === "string";
}
