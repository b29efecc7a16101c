import { type MigrationResult, newTally, type Tally } from "../../migrator/types.ts";
import { describeCounts, doneIn } from "./describe-event.ts";
import { countsIn } from "./reporter.ts";

/** What became of several resources that were to be re-encrypted together. */
export interface ReencryptionSummary {
  /** Those whose objects are all encrypted by one and the same configuration. */
  readonly results: readonly MigrationResult[];
  /** Names of the others. */
  readonly notDone: readonly string[];
  /** The digest of that configuration; missing where that is not known at the end. */
  readonly encryption?: string | undefined;
}

/** The summary in words, on one line. */
export function describeSummary({ encryption, notDone, results }: ReencryptionSummary): string {
  const all = results.length + notDone.length;
  const left = notDone.length === 0 ? "" : `; not ${notDone.join(", ")}: the old key is still needed`;
  const by = encryption === undefined ? "" : ` with configuration ${encryption}`;
  return `re-encrypted ${results.length} of ${all} resources${by}: ${describeCounts(totalOf(results))}${left}`;
}

/** That objects were not rewritten, and why, in words; `undefined` where all of them were. */
export function describeUnchanged(results: readonly MigrationResult[]): string | undefined {
  const total = totalOf(results);
  const [current, done] = [total.current, doneIn(total)];
  if (done === 0) return "no object was rewritten: there is none";
  const all = current === done ? "no object was rewritten" : `${current} of ${done} objects were not rewritten`;
  return current === 0 ? undefined : `${all}: this configuration stores them as they were before`;
}

/** The summary as one line of `-o json`. */
export function summaryLine({ encryption, notDone, results }: ReencryptionSummary): object {
  return {
    type: "summary",
    resources: results.map(({ resource }) => resource),
    notDone,
    ...(encryption === undefined ? {} : { encryption }),
    counts: countsIn(totalOf(results)),
  };
}

function totalOf(results: readonly MigrationResult[]): Tally {
  const sum = newTally();
  for (const { tally } of results) {
    for (const field of ["total", "rewritten", "current", "newer", "gone", "failed", "changed"] as const) {
      sum[field] += tally?.[field] ?? 0;
    }
  }
  return sum;
}
