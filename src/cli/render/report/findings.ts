import { objectNameOf } from "../../../kube/named-object.ts";
import type { ObjectFailure } from "../../../migrator/rewrite/counts.ts";
import type { MigrationLine } from "../../../plan/migration-lines.ts";
import { newestByResource, workIn } from "../../../report/evidence.ts";
import type { Outdated } from "../../../report/outdated.ts";
import type { Report } from "../../../report/report.ts";
import type { ReportRow } from "../../../report/resource-rows.ts";
import type { Verification } from "../../../verify/verification.ts";
import { describeResult } from "../describe-event.ts";
import { noteOf } from "../render-plan.ts";
import { describeStorage, freezerText, runStateOf, suspendedLine } from "../render-status.ts";
import { describeNotCurrent, describeVerification } from "../render-verification.ts";

/** Something that calls for attention. */
export interface Finding {
  /** A resource, or what else it is about. */
  readonly about: string;
  readonly what: string;
  /** One by one, as an object and why. @default none */
  readonly reasons?: readonly string[];
  /** How many more there are than `reasons` names. @default 0 */
  readonly more?: number;
}

/** Everything that calls for attention: what failed first, then what cannot start, was not proven, or is not known. */
export function findingsOf(report: Report): readonly Finding[] {
  return [
    ...report.rows.flatMap(failedMigration),
    ...failedReencryptions(report),
    ...report.rows.flatMap(plannedFinding),
    ...report.rows.flatMap(verificationFinding),
    ...evidenceFindings(report),
    ...statusFindings(report),
    ...report.unavailable.map(({ groupVersion, reason }) => ({
      about: groupVersion,
      what: `its resources are left out: its API server says: ${reason}`,
    })),
    ...(report.status.unknown ?? []).map((what) => ({ about: "not known", what })),
  ];
}

function failedMigration({ migration, state }: ReportRow): readonly Finding[] {
  return state === "failed" && migration !== undefined ? [migrationFinding(migration, "migration")] : [];
}

function failedReencryptions({ status: { migrations } }: Report): readonly Finding[] {
  const all = migrations.filter(({ reencrypts }) => reencrypts === true);
  const newest = new Map(
    all
      .toSorted((a, b) => (a.created ?? "").localeCompare(b.created ?? ""))
      .map((line) => [line.resource, line] as const),
  );
  return [...newest.values()]
    .filter(({ state }) => state === "Failed")
    .map((line) => migrationFinding(line, "re-encryption"));
}

function migrationFinding({ counts, failures = [], message, name, resource }: MigrationLine, what: string): Finding {
  const why = message === undefined ? "" : `: ${message}`;
  const more = Math.max(0, (counts?.failed ?? 0) - failures.length);
  return { about: resource, what: `${what} ${name} failed${why}`, reasons: failures.map(failureText), more };
}

function failureText(failure: ObjectFailure): string {
  return `${objectNameOf(failure)}: ${failure.reason}`;
}

function plannedFinding({ entry }: ReportRow): readonly Finding[] {
  const note = noteOf(entry) ?? "";
  if (entry.action === "blocked") {
    return [{ about: entry.name, what: `a migration cannot start: ${note}` }];
  }
  if (entry.conversionProblem !== undefined) {
    return [{ about: entry.name, what: `a migration would wait: ${note}` }];
  }
  const isDoubted = entry.objects === undefined || entry.pruneDoubt !== undefined;
  return isDoubted ? [{ about: entry.name, what: note }] : [];
}

function verificationFinding({ entry, outdated, verification: told }: ReportRow): readonly Finding[] {
  if (told === undefined) {
    return [];
  }
  const { verification, source } = told;
  if (outdated !== undefined) {
    const what = `the verification in ${source} shows nothing of now: ${describeOutdated(outdated, verification, entry)}`;
    return [{ about: entry.name, what }];
  }
  if (verification.outcome === "current") {
    return [];
  }
  const { changed, counts, notShown } = verification;
  const reasons = [...changed.map(describeNotCurrent), ...notShown.map(failureText)];
  const more = Math.max(0, counts.changed + counts.notShown - reasons.length);
  const what = `not everything was current by the verification in ${source}: ${describeVerification(verification)}`;
  return [{ about: entry.name, what, reasons, more }];
}

function describeOutdated(outdated: Outdated, then: Verification, now: ReportRow["entry"]): string {
  switch (outdated) {
    case "storage version": {
      const of = then.storageVersion ?? then.storageVersionHash ?? "";
      return `it is of storage version "${of}", and now that is "${now.storageVersion ?? ""}"`;
    }
    case "unnamed CRD":
      return "it does not tell uid and generation of the CRD, as none of an older ksvm does; verify again";
    case "CRD":
      return "it is of a CRD of this name that was deleted since";
    case "spec":
      return `it is of the CRD with uid/generation ${then.crd ?? ""}, and now that is ${now.crd ?? ""}`;
  }
}

/** Of each resource the last word counts. */
function evidenceFindings({ evidence }: Report): readonly Finding[] {
  return [...newestByResource(workIn(evidence)).values()].flatMap((told): readonly Finding[] => {
    const { resource: about, source } = told;
    switch (told.kind) {
      case "error":
        return [{ about, what: `the run in ${source} failed: ${told.message} [${told.code}]` }];
      case "unfinished":
        return [{ about, what: `the run in ${source} has no end: it was killed, or was still at work` }];
      case "result": {
        const { counts, failures, outcome } = told.result;
        if (outcome !== "incomplete") {
          return [];
        }
        const what = `the run in ${source}: ${describeResult(told.result, told.elapsedMs)}`;
        const more = Math.max(0, (counts?.failed ?? 0) - failures.length);
        return [{ about, what, reasons: failures.map(failureText), more }];
      }
    }
  });
}

function statusFindings({ now, status }: Report): readonly Finding[] {
  const { freezes, leftOut = [], runs, storage = [] } = status;
  return [
    ...suspendedLine(status).map((what) => ({ about: "migrations", what })),
    ...leftOut.map(({ name, reason }) => ({ about: `migration ${name}`, what: `it cannot be read: ${reason}` })),
    ...freezes
      .filter(({ isStuck, owner }) => isStuck === true || owner === undefined)
      .map((line) => ({ about: line.crd, what: `frozen by ${freezerText(line)}` })),
    ...runs
      .filter(({ state }) => state !== "alive")
      .map((run) => ({ about: run.resource, what: `a run without a migration object: ${runStateOf(run, now)}` })),
    ...storage.map((line) => ({
      about: line.resource,
      what: `not everything is stored alike: ${describeStorage(line)}`,
    })),
  ];
}
