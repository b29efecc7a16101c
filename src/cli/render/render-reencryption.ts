import type { Counts } from "../../old/migrator/rewrite/counts.ts";
import type { MigrationResult } from "../../old/migrator/result.ts";
import { describeCounts } from "./describe-event.ts";

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
export function describeSummary(summary: ReencryptionSummary): string {
  const { encryption, notDone, results } = summary;
  const all = results.length + notDone.length;
  const left = notDone.length === 0 ? "" : `; not ${notDone.join(", ")}: the old key is still needed`;
  const by = encryption === undefined ? "" : ` with configuration ${encryption}`;
  return `re-encrypted ${results.length} of ${all} resources${by}: ${describeCounts(totalOf(results))}${left}`;
}

/** That objects were not rewritten, and why, in words; `undefined` where all of them were. */
export function describeUnchanged(results: readonly MigrationResult[]): string | undefined {
  const { current, done } = totalOf(results);
  if (done === 0) {
    return "no object was rewritten: there is none";
  }
  const all = current === done ? "no object was rewritten" : `${current} of ${done} objects were not rewritten`;
  return current === 0 ? undefined : `${all}: this configuration stores them as they were before`;
}

/** The summary as one line of `-o json`. */
export function summaryLine(summary: ReencryptionSummary): object {
  const { encryption, notDone, results } = summary;
  return {
    type: "summary",
    resources: results.map(({ resource }) => resource),
    notDone,
    ...(encryption === undefined ? {} : { encryption }),
    counts: totalOf(results),
  };
}

function totalOf(results: readonly MigrationResult[]): Counts {
  const sum = (field: Exclude<keyof Counts, "total">): number =>
    results.reduce((total, { counts }) => total + (counts?.[field] ?? 0), 0);
  const done = sum("done");
  return {
    done,
    migrated: sum("migrated"),
    current: sum("current"),
    newer: sum("newer"),
    gone: sum("gone"),
    failed: sum("failed"),
    changed: sum("changed"),
    total: done,
  };
}
