import { isFinal } from "../api/migration.ts";
import type { ClusterStatus } from "../plan/cluster-status.ts";
import type { CountedEntry } from "../plan/inventory.ts";
import type { MigrationLine } from "../plan/migration-lines.ts";
import { isRunOf } from "../plan/run-lines.ts";
import { type EvidenceOf, newestByResource, verificationsIn } from "./evidence.ts";
import { type Outdated, outdatedOf } from "./outdated.ts";
import type { ReportFacts } from "./report-facts.ts";

/**
 * How a resource stands, what calls for attention first.
 *
 * - `failed`: its newest migration failed, and what it was to do is still to do
 * - `blocked`: a migration could not start
 * - `unproven`: the newest verification found objects that were not current, or shows nothing of some
 * - `active`: a migration or a run is at work
 * - `waiting`: a migration is in the queue, waits, or is suspended
 * - `stale`: objects may be stored in another version than they are to be
 * - `unknown`: nothing tells in which version its objects are stored
 * - `clean`: storedVersions is the storage version alone; of a built-in resource its StorageState says the same
 * - `verified`: that, and the newest verification found every object current, in the storage version and for the CRD of now
 */
export const REPORT_STATES = [
  "failed",
  "blocked",
  "unproven",
  "active",
  "waiting",
  "stale",
  "unknown",
  "clean",
  "verified",
] as const;
/** One of {@link REPORT_STATES}. */
export type ReportState = (typeof REPORT_STATES)[number];

/** One resource of a report. */
export interface ReportRow {
  readonly entry: CountedEntry;
  readonly state: ReportState;
  /** The newest migration that is about its storage version; missing where there is none. */
  readonly migration?: MigrationLine;
  /** Missing where there is none. */
  readonly verification?: EvidenceOf<"verification">;
  /** Why the verification shows nothing of now; missing where it does. */
  readonly outdated?: Outdated;
}

/** The rows of a report: what calls for attention first, then by type and name. */
export function reportRowsOf(facts: Pick<ReportFacts, "entries" | "evidence" | "status">): readonly ReportRow[] {
  const verifications = newestByResource(verificationsIn(facts.evidence));
  const migrations = newestMigrations(facts.status);
  const rows = facts.entries.map((entry) => {
    const [migration, verification] = [migrations.get(entry.name), verifications.get(entry.name)];
    const outdated = verification && outdatedOf(verification.verification, entry);
    const shown = outdated === undefined ? verification?.verification.outcome : undefined;
    return {
      entry,
      state: stateIn({ entry, migration, shown, isRunning: hasRun(facts.status, entry.name) }),
      ...(migration === undefined ? {} : { migration }),
      ...(verification === undefined ? {} : { verification }),
      ...(outdated === undefined ? {} : { outdated }),
    };
  });
  // The entries come sorted, and sorting keeps the order of equal ones.
  return rows.toSorted((a, b) => REPORT_STATES.indexOf(a.state) - REPORT_STATES.indexOf(b.state));
}

/** A re-encryption says nothing of the storage version. */
function newestMigrations({ migrations }: ClusterStatus): ReadonlyMap<string, MigrationLine> {
  const ofStorage = migrations.filter(({ reencrypts }) => reencrypts !== true);
  const byTime = ofStorage.toSorted((a, b) => timeOf(a) - timeOf(b));
  return new Map(byTime.map((line) => [line.resource, line]));
}

function timeOf({ created }: MigrationLine): number {
  return Date.parse(created ?? "") || 0;
}

function hasRun({ runs }: ClusterStatus, resource: string): boolean {
  return runs.some((run) => run.state === "alive" && isRunOf(run, resource));
}

interface StateFacts {
  readonly entry: CountedEntry;
  readonly migration: MigrationLine | undefined;
  /** What the newest verification shows of now. */
  readonly shown: EvidenceOf<"verification">["verification"]["outcome"] | undefined;
  readonly isRunning: boolean;
}

/**
 * What a migration object says of itself is no proof that its work is done: its status can be written by others. So a state that stands
 * for work done comes from the plan, and from a verification.
 */
function stateIn({ entry: { action }, isRunning, migration, shown }: StateFacts): ReportState {
  const atWork = isRunning ? "active" : stateAtWork(migration);
  if (atWork !== undefined) {
    return atWork;
  }
  if (migration?.state === "Failed" && action !== "none") {
    return "failed";
  }
  const planned = PLANNED_STATES[action];
  return planned === "blocked" || planned === "stale" ? planned : (shownState(shown) ?? planned);
}

const PLANNED_STATES = { blocked: "blocked", migrate: "stale", unknown: "unknown", none: "clean" } as const;

/** The state of a migration that has not ended. */
function stateAtWork(migration: MigrationLine | undefined): ReportState | undefined {
  if (migration === undefined || isFinal(migration.state)) {
    return undefined;
  }
  return migration.state === "Running" ? "active" : "waiting";
}

function shownState(shown: StateFacts["shown"]): ReportState | undefined {
  if (shown === undefined) {
    return undefined;
  }
  return shown === "current" ? "verified" : "unproven";
}
