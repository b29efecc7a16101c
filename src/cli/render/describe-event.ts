import { wordsFor } from "../../old/apiservers/concern-words.ts";
import { objectNameOf } from "../../old/kube/named-object.ts";
import type { Counts, ObjectFailure } from "../../old/migrator/rewrite/counts.ts";
import type { MigrationEvent } from "../../old/migrator/events.ts";
import type { MigrationResult } from "../../old/migrator/result.ts";

type Describers = {
  readonly [T in MigrationEvent["type"]]: (event: Extract<MigrationEvent, { type: T }>) => string | undefined;
};

const DESCRIBERS: Describers = {
  contended: ({ holder }) =>
    `"${holder}" holds the Lease of this migration; checking for up to 15s whether it is alive`,
  frozen: ({ storageVersion, guard }) =>
    `froze the storage version at "${storageVersion}", guarded by ${guard.kind} "${guard.name}"`,
  proven: ({ apiServers }) => `proved the freeze on ${apiServers.join(", ")}`,
  lagging: ({ server, reason }) => `waiting for ${server}: ${reason}`,
  converged: ({ apiServers, concern }) =>
    `every API server shows ${wordsFor(concern).shown} (${apiServers.join(", ")})`,
  encryptingAlike: ({ configuration, apiServers }) =>
    `every API server encrypts with configuration ${configuration} (${apiServers.join(", ")})`,
  settling: ({ concern, remainingMs }) =>
    `waiting ${durationText(remainingMs)} for in-flight writes ${wordsFor(concern).late} to finish`,
  resumed: ({ watermark }) => `resuming an earlier run at resourceVersion ${watermark}`,
  tokenRefused: ({ status, startsOver }) =>
    `the API server refused the continue token (${status}); ` +
    (startsOver ? "the list starts over at the first object" : "the list continues at the same object"),
  retrying: ({ delayMs, object, reason }) =>
    `retrying ${object === undefined ? "" : `${objectNameOf(object)} `}in ${durationText(delayMs)}: ${reason}`,
  waiting: ({ webhook, reason, budgetMs, waitsFor }) =>
    `${waitsFor === undefined ? "" : `${waitsFor}: `}waiting up to ${durationText(budgetMs)} without a freeze` +
    `${webhook === undefined ? "" : ` for webhook "${webhook}"`}: ${reason}`,
  yielding: ({ reason }) => `waiting: ${reason}`,
  startingAgain: ({ reason }) => `starting again: ${reason}`,
  pruned: ({ clearsDoubt = false, storedVersions }) =>
    `pruned storedVersions to [${storedVersions.join(",")}]` +
    (clearsDoubt ? ", and cleared the condition StorageMigrating of a migration that did not succeed" : ""),
  unfrozen: () => "lifted the freeze",
  warning: ({ message }) => `warning: ${message}`,
  progress: () => undefined,
};

/** An event in words; `undefined` if it only moves the progress bar. */
export function describeEvent(event: MigrationEvent): string | undefined {
  const describe = DESCRIBERS[event.type] as (event: MigrationEvent) => string | undefined;
  return describe(event);
}

/** The result of a run in words, on one line. */
export function describeResult(result: MigrationResult, elapsedMs: number): string {
  const fields = fieldsPart(result);
  const versions = result.storedVersions;
  const stored = `${versions === undefined ? "" : `; storedVersions is [${versions.join(",")}]`}${fields}`;
  switch (result.outcome) {
    case "nothing-to-do":
      return `nothing to do${stored}`;
    case "migrated":
      return `${workOf(result)} in ${durationText(elapsedMs)}: ${describeCounts(result.counts, result)}${stored}`;
    case "incomplete":
      return result.isDryRun === true
        ? describeDryRun(result)
        : `incomplete after ${durationText(elapsedMs)}: ${incompleteCounts(result)}${whatIsLeftOf(result)}${fields}`;
    case "dry-run":
      return describeDryRun(result);
  }
}

function workOf({ encryption }: MigrationResult): string {
  return encryption === undefined ? "migrated" : "re-encrypted";
}

/** A migration of another migrator has no counts. */
function incompleteCounts(result: MigrationResult): string {
  return result.counts === undefined ? "" : `${describeCounts(result.counts, result)}; `;
}

function whatIsLeftOf({ encryption, storedVersions }: MigrationResult): string {
  if (storedVersions !== undefined) {
    return `storedVersions is [${storedVersions.join(",")}]`;
  }
  return encryption === undefined ? "nothing was pruned" : "the old key is still needed";
}

/** States what the API server would accept: nothing was written. */
function describeDryRun(result: MigrationResult): string {
  const { counts } = result;
  const { done = 0, failed = 0 } = counts ?? {};
  const rejected = failed === 0 ? "" : `, ${failed} rejected`;
  return `dry run: ${done - failed} objects would be accepted${changedPart(counts)}${rejected}${fieldsPart(result)}; nothing was changed`;
}

/** What became of managedFields, where they were to be converted. */
function fieldsPart({ isDryRun, managedFields }: MigrationResult): string {
  if (managedFields === undefined) {
    return "";
  }
  const { converted, kept } = managedFields;
  if (converted === 0 && kept === 0) {
    return "";
  }
  const left = kept === 0 ? "" : `, those of ${kept} left as they are`;
  return `; managedFields of ${converted} objects ${isDryRun === true ? "would be " : ""}converted${left}`;
}

/** The objects whose managedFields still name another version, a line each. */
export function describeKeptFields({ managedFields }: MigrationResult): readonly string[] {
  const { kept = 0, keptObjects = [] } = managedFields ?? {};
  return failureLines(keptObjects, kept);
}

function changedPart(counts: Readonly<Counts> | undefined): string {
  const changed = counts?.changed ?? 0;
  return changed === 0 ? "" : ` (${changed} of them changed beyond their encoding)`;
}

/** The objects that could not be migrated, a line each. */
export function describeFailures({ failures, counts }: MigrationResult): readonly string[] {
  return failureLines(failures, counts?.failed ?? 0);
}

function failureLines(named: readonly ObjectFailure[], count: number): readonly string[] {
  const lines = named.map((failure) => `  ${objectNameOf(failure)}: ${failure.reason}`);
  const more = count - named.length;
  return more > 0 ? [...lines, `  and ${more} more`] : lines;
}

/** The objects that were changed beyond their encoding, a line each. */
export function describeChanged({ changedObjects, counts }: MigrationResult): readonly string[] {
  const lines = changedObjects.map((object) => `  ${objectNameOf(object)}`);
  const more = (counts?.changed ?? 0) - changedObjects.length;
  return more > 0 ? [...lines, `  and ${more} more`] : lines;
}

const COUNT_WORDS = [
  ["migrated", "rewritten"],
  ["current", "already up to date"],
  ["newer", "written since the run began"],
  ["gone", "deleted during the run"],
  ["failed", "failed"],
] as const;

/** By this program or by another client: the object does not tell which. */
const WRITTEN_SINCE_EARLIER_ATTEMPT = "written since an earlier attempt began";

/** `5000 rewritten, 3 deleted during the run`. */
export function describeCounts(
  counts: Readonly<Counts> | undefined,
  { isResumed }: Pick<MigrationResult, "isResumed"> = {},
): string {
  const parts = COUNT_WORDS.flatMap(([field, plainWords]) => {
    const words = isResumed === true && field === "newer" ? WRITTEN_SINCE_EARLIER_ATTEMPT : plainWords;
    const count = counts?.[field] ?? 0;
    return count === 0 ? [] : [`${count} ${words}${field === "migrated" ? changedPart(counts) : ""}`];
  });
  return parts.length === 0 ? "no objects" : parts.join(", ");
}

/** Before this many milliseconds a rate is not meaningful. */
const STEADY_MS = 1_000;

/** One line of progress. */
export function progressLine(counts: Readonly<Counts>, elapsedMs: number): string {
  const total = Math.max(counts.total ?? counts.done, counts.done);
  const share = total === 0 ? 1 : counts.done / total;
  const rate = counts.done / (elapsedMs / 1_000);
  const isSteady = elapsedMs >= STEADY_MS && rate > 0;
  const speed = isSteady ? `, ${Math.round(rate)}/s, ${durationText(((total - counts.done) / rate) * 1_000)} left` : "";
  const failed = counts.failed === 0 ? "" : `, ${counts.failed} failed`;
  return `${Math.floor(share * 100)}% ${counts.done}/${total}${failed}${speed}`;
}

/** Milliseconds in words: `0.1s`, `9s`, `64s`. */
export function durationText(ms: number): string {
  return `${(ms / 1_000).toFixed(ms < 10_000 ? 1 : 0).replace(/\.0$/, "")}s`;
}
