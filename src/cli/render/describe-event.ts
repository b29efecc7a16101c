import type { MigrationEvent, MigrationResult, Tally } from "../../migrator/types.ts";

/** An event in words; `undefined` if it only moves the progress bar, or if nothing was to be done. */
export function describeEvent(event: MigrationEvent): string | undefined {
  switch (event.type) {
    case "waiting":
      return `waiting without a freeze: ${event.reason}`;
    case "converged":
      return `every API server shows the storage version (${event.apiServers}${event.isSampled ? ", sampled" : ""})`;
    case "settling":
      return `waiting ${durationText(event.leftMs)}: ${event.reason}`;
    case "settled":
      return event.isLongPast ? undefined : "requests of before have ended";
    case "frozen": {
      const { apiServers, guard, storageVersion } = event;
      const where = apiServers === 1 ? "the API server" : `${apiServers} API servers`;
      return `froze the storage version at "${storageVersion}", guarded by ${guard.kind} "${guard.name}" on ${where}`;
    }
    case "resumed":
      return `resuming an earlier run at resourceVersion ${event.watermark}`;
    case "beginsAgain":
      return `beginning again: ${event.reason}`;
    case "pruned":
      return `pruned storedVersions to [${event.storedVersions.join(",")}]`;
    case "unfrozen":
      return "lifted the freeze";
    case "warning":
      return `warning: ${event.message}`;
    case "progress":
      return undefined;
  }
}

/** What a run was for. The words for its result differ. */
export type RunPurpose = "migrate" | "dry-run" | "reencrypt";

/** The result of a run in words, on one line. */
export function describeResult(
  { outcome, storedVersions, tally }: MigrationResult,
  elapsedMs: number,
  purpose: RunPurpose = "migrate",
): string {
  const stored = storedVersions && `storedVersions is [${storedVersions.join(",")}]`;
  if (outcome === "nothing-to-do") return joined("nothing to do", stored);
  if (purpose === "dry-run" || outcome === "dry-run") return describeDryRun(tally);
  const counts = tally && describeCounts(tally);
  if (outcome === "migrated") {
    const work = `${purpose === "reencrypt" ? "re-encrypted" : "migrated"} in ${durationText(elapsedMs)}`;
    return joined(counts === undefined ? work : `${work}: ${counts}`, stored);
  }
  const left = stored ?? (purpose === "reencrypt" ? "the old key is still needed" : "nothing was pruned");
  return `incomplete after ${durationText(elapsedMs)}: ${joined(counts, left)}`;
}

function joined(...parts: readonly (string | undefined)[]): string {
  return parts.filter((part) => part !== undefined).join("; ");
}

/** States what the API server would accept: nothing was written. */
function describeDryRun(tally: Readonly<Tally> | undefined): string {
  const { current = 0, failed = 0, newer = 0, rewritten = 0 } = tally ?? {};
  const rejected = failed === 0 ? "" : `, ${failed} rejected`;
  const accepted = `${rewritten + current + newer} objects would be accepted${changedPart(tally)}`;
  return `dry run: ${accepted}${rejected}; nothing was changed`;
}

function changedPart(tally: Readonly<Tally> | undefined): string {
  const changed = tally?.changed ?? 0;
  return changed === 0 ? "" : ` (${changed} of them changed beyond their encoding)`;
}

const COUNT_WORDS = [
  ["rewritten", "rewritten"],
  ["current", "already up to date"],
  ["newer", "written since the run began"],
  ["gone", "deleted during the run"],
  ["failed", "failed"],
] as const;

/** `5000 rewritten, 3 deleted during the run`. */
export function describeCounts(tally: Readonly<Tally>): string {
  const parts = COUNT_WORDS.flatMap(([field, words]) => {
    const count = tally[field];
    return count === 0 ? [] : [`${count} ${words}${field === "rewritten" ? changedPart(tally) : ""}`];
  });
  return parts.length === 0 ? "no objects" : parts.join(", ");
}

/** The objects that could not be migrated, a line each. */
export function describeFailures({ tally }: MigrationResult): readonly string[] {
  const { failed = 0, failures = [] } = tally ?? {};
  const lines = failures.map(
    ({ name, namespace, reason }) => `  ${namespace === undefined ? "" : `${namespace}/`}${name}: ${reason}`,
  );
  const more = failed - failures.length;
  return more > 0 ? [...lines, `  and ${more} more`] : lines;
}

/**
 * Which versions the managedFields of a custom resource still name; `undefined` where they name the storage version
 * alone. So it is where a webhook converts: only their own clients know which field is which.
 */
export function describeFieldVersions({ storageVersion, tally }: MigrationResult): string | undefined {
  const versions = Object.entries(tally?.fieldVersions ?? {});
  if (storageVersion === undefined || versions.length === 0) return undefined;
  const named = versions.map(([version, objects]) => `${version} (${objects} objects)`).join(", ");
  const remedy = `have their clients apply them in ${storageVersion} before such a version is removed`;
  return `managedFields still name ${named}: ${remedy}`;
}

/** How many objects were looked at, whatever came of it. */
export function doneIn({ current, failed, gone, newer, rewritten }: Readonly<Tally>): number {
  return rewritten + current + newer + gone + failed;
}

/** Before this many milliseconds a rate is not meaningful. */
const STEADY_MS = 1_000;

/** One line of progress. */
export function progressLine(tally: Readonly<Tally>, elapsedMs: number): string {
  const done = doneIn(tally);
  const total = Math.max(tally.total, done);
  const share = total === 0 ? 1 : done / total;
  const rate = done / (elapsedMs / 1_000);
  const isSteady = elapsedMs >= STEADY_MS && rate > 0;
  const speed = isSteady ? `, ${Math.round(rate)}/s, ${durationText(((total - done) / rate) * 1_000)} left` : "";
  const failed = tally.failed === 0 ? "" : `, ${tally.failed} failed`;
  return `${Math.floor(share * 100)}% ${done}/${total}${failed}${speed}`;
}

/** Milliseconds in words: `0.1s`, `9s`, `64s`. */
export function durationText(ms: number): string {
  return `${(ms / 1_000).toFixed(ms < 10_000 ? 1 : 0).replace(/\.0$/, "")}s`;
}
