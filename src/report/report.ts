import type { ClusterStatus } from "../plan/cluster-status.ts";
import type { Estimate } from "../plan/estimate.ts";
import { isRunOf } from "../plan/run-lines.ts";
import type { ReportFacts } from "./report-facts.ts";
import { REPORT_STATES, type ReportRow, reportRowsOf, type ReportState } from "./resource-rows.ts";

/** What a report says, before it has a form. */
export interface Report extends Omit<ReportFacts, "entries" | "status"> {
  readonly rows: readonly ReportRow[];
  /** What is going on, of the resources of the report. */
  readonly status: ClusterStatus;
  /** How many resources are in each state; those in which one is, in the order of {@link REPORT_STATES}. */
  readonly counts: readonly { readonly state: ReportState; readonly resources: number }[];
  readonly planned: Planned;
}

/** What is to be migrated. */
export interface Planned {
  /** Those that a migration has work with and could start with. */
  readonly rows: readonly ReportRow[];
  /** Of those that can be counted, one after the other; missing where there is none. */
  readonly total?: Estimate;
  readonly objects: number;
  /** How many of them cannot be counted. */
  readonly uncounted: number;
}

/** Decides what a report says. */
export function reportOf({ entries, status, ...facts }: ReportFacts): Report {
  const rows = reportRowsOf({ entries, evidence: facts.evidence, status });
  const known = facts.names.length === 0 ? status : statusAbout(status, new Set(entries.map(({ name }) => name)));
  const counts = REPORT_STATES.map((state) => ({
    state,
    resources: rows.filter((row) => row.state === state).length,
  })).filter(({ resources }) => resources > 0);
  return { ...facts, rows, status: known, counts, planned: plannedOf(rows) };
}

function plannedOf(all: readonly ReportRow[]): Planned {
  const rows = all.filter(({ entry }) => entry.action === "migrate");
  const estimates = rows.flatMap(({ entry: { estimate } }) => (estimate === undefined ? [] : [estimate]));
  const total = {
    requests: sum(estimates.map(({ requests }) => requests)),
    seconds: sum(estimates.map(({ seconds }) => seconds)),
  };
  return {
    rows,
    ...(estimates.length === 0 ? {} : { total }),
    objects: sum(rows.map(({ entry }) => entry.objects ?? 0)),
    uncounted: rows.length - estimates.length,
  };
}

function sum(numbers: readonly number[]): number {
  return numbers.reduce((total, one) => total + one, 0);
}

/** What cannot be told to be about another resource stays: it may be about one of these. */
function statusAbout(status: ClusterStatus, names: ReadonlySet<string>): ClusterStatus {
  const storage = status.storage?.filter(({ resource }) => names.has(resource));
  return {
    ...status,
    migrations: status.migrations.filter(({ resource }) => names.has(resource)),
    runs: status.runs.filter((run) => [...names].some((name) => isRunOf(run, name))),
    freezes: status.freezes.filter(({ crd }) => names.has(crd)),
    ...(storage === undefined ? {} : { storage }),
  };
}
