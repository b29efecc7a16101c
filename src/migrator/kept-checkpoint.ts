import { createHash } from "node:crypto";
import type { Foundation } from "./foundation.ts";
import { type KeptFollowing, keptFollowingIn } from "./rewrite/counted-objects.ts";
import { formatDigested, parseDigested } from "./rewrite/digested-text.ts";
import { type EarlierProgress, type EarlierRun, progressIn } from "./rewrite/checkpoint.ts";

/** Where a run of `ksvm reencrypt` stands, as its Lease keeps it after every page. */
export interface KeptCheckpoint {
  /** Of the run: no run with another purpose may go on from here. */
  readonly purpose: string;
  /** `plural.group` of what it rewrites. */
  readonly resource: string;
  /** The digest of all that it rests on, see {@link digestOfFoundation}: how every API server encrypts, and since when. */
  readonly foundation: string;
  /** Milliseconds that it waited for late writes at the least, before the watermark. */
  readonly settleMs: number;
  /** Milliseconds that it waited on top of that for API servers that had left. @default 0 */
  readonly shutdownDelayMs?: number | undefined;
  /** The resourceVersion up to which no API server joined or left since the foundation was laid. */
  readonly quietUpTo: string;
  /** resourceVersion of its first consistent list: objects written later are encrypted as the foundation has it. */
  readonly watermark: string;
  /** Where the next page begins. @default at the first object */
  readonly continueToken?: string | undefined;
  /** As in a `Checkpoint`. */
  readonly following?: KeptFollowing | undefined;
  readonly progress?: EarlierProgress | undefined;
}

/** What a checkpoint is compared with. */
export type KeptExpectation = Pick<
  KeptCheckpoint,
  "purpose" | "resource" | "foundation" | "settleMs" | "shutdownDelayMs"
>;

/**
 * What a run rests on, as text. Restarts, and what came and went, are counted by each process for itself, so they are left out: the
 * encryption has when the process of every API server started.
 */
export function digestOfFoundation(foundation: Foundation): string {
  const fields = Object.entries(foundation)
    .filter(([name]) => !["restarts", "arrivals", "newestArrival"].includes(name))
    .toSorted(([a], [b]) => a.localeCompare(b));
  return createHash("sha256").update(JSON.stringify(fields)).digest("hex");
}

/**
 * The text of a checkpoint, with a digest over its fields: one that is cut or was edited by mistake is not believed. It proves no
 * author: only a user who asks for that goes on from it.
 */
export function formatKept(checkpoint: KeptCheckpoint): string {
  return formatDigested(fieldsOf(checkpoint));
}

/** `undefined` where it is no whole one, or the one of another kind of run. */
export function parseKept(text: string | undefined): KeptCheckpoint | undefined {
  return parseDigested(text, fieldsOf);
}

/** Why a run may not go on from a checkpoint, in words; `undefined` where all that can be compared is the same. */
export function differenceFrom(kept: KeptCheckpoint, expected: KeptExpectation): string | undefined {
  if (kept.purpose !== expected.purpose || kept.resource !== expected.resource) {
    return "it belongs to another run";
  }
  const [keptDelayMs, delayMs] = [kept, expected].map(({ shutdownDelayMs = 0 }) => shutdownDelayMs) as [number, number];
  if (kept.settleMs < expected.settleMs || keptDelayMs < delayMs) {
    return "that run had waited for late writes for a shorter time";
  }
  return kept.foundation === expected.foundation
    ? undefined
    : "an API server encrypts otherwise since, restarted, joined or left, or the resource is stored otherwise";
}

/** Where the next run goes on. */
export function earlierRunOf({ continueToken, following, progress, watermark }: KeptCheckpoint): EarlierRun {
  const further = {
    ...(following === undefined ? {} : { following }),
    ...(progress === undefined ? {} : { progress }),
  };
  return continueToken === undefined ? { watermark } : { watermark, continueToken, ...further };
}

function fieldsOf(kept: KeptCheckpoint): KeptCheckpoint {
  const { purpose, resource, foundation, settleMs, shutdownDelayMs, quietUpTo, watermark, continueToken } = kept;
  const following = keptFollowingIn(kept.following);
  const progress = progressIn(kept.progress);
  return {
    purpose,
    resource,
    foundation,
    settleMs,
    ...(shutdownDelayMs === undefined ? {} : { shutdownDelayMs }),
    quietUpTo,
    watermark,
    ...(continueToken === undefined ? {} : { continueToken }),
    ...(following === undefined ? {} : { following }),
    ...(progress === undefined ? {} : { progress }),
  };
}
