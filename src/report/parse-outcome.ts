import { countIn, isAbsent, type JsonObject, listIn, objectIn, textIn, withoutUndefined } from "../api/json-fields.ts";
import { STORAGE_ENCODINGS } from "../apiservers/storage-encoding.ts";
import type { NamedObject } from "../kube/named-object.ts";
import type { NotCurrent } from "../migrator/events.ts";
import type { MigrationResult } from "../migrator/result.ts";
import type { FieldsReport } from "../migrator/rewrite/convert-fields.ts";
import type { Counts, ObjectFailure } from "../migrator/rewrite/counts.ts";
import type { ShownOn, Verification, VerificationCounts } from "../verify/verification.ts";

const RESULT_OUTCOMES = ["migrated", "nothing-to-do", "incomplete", "dry-run"] as const;
const VERIFICATION_OUTCOMES = ["current", "changed", "not-shown"] as const;
const DOUBTS = ["changed by admission", "managedFields emptied", "no answer"] as const;

/** The result of a run, with the fields that it has; `undefined` where one that every result has is missing or of another type. */
export function resultIn(fields: JsonObject): MigrationResult | undefined {
  const resource = textIn(fields["resource"]);
  const outcome = wordIn(fields["outcome"], RESULT_OUTCOMES);
  const counts = countsIn(fields["counts"]);
  const isCounted = counts !== undefined || isAbsent(fields["counts"]);
  if (resource === undefined || outcome === undefined || !isCounted) {
    return undefined;
  }
  return withoutUndefined<MigrationResult>({
    resource,
    outcome,
    storageVersion: textIn(fields["storageVersion"]),
    storedVersions: Array.isArray(fields["storedVersions"]) ? namesIn(fields["storedVersions"]) : undefined,
    encryption: textIn(fields["encryption"]),
    encoding: wordIn(fields["encoding"], STORAGE_ENCODINGS),
    counts,
    isDryRun: fields["isDryRun"] === true ? true : undefined,
    isResumed: fields["isResumed"] === true ? true : undefined,
    managedFields: fieldsReportIn(fields["managedFields"]),
    failures: listIn(fields["failures"]).flatMap(failureIn),
    changedObjects: listIn(fields["changedObjects"]).flatMap(objectNamedIn),
  });
}

/** A verification, read as {@link resultIn} reads a result; `undefined` also where its counts contradict its outcome. */
export function verificationIn(fields: JsonObject): Verification | undefined {
  const resource = textIn(fields["resource"]);
  const outcome = wordIn(fields["outcome"], VERIFICATION_OUTCOMES);
  const counts = verificationCountsIn(fields["counts"]);
  const apiServers = shownOnIn(fields["apiServers"]);
  const watermark = textIn(fields["watermark"]);
  if (!resource || !outcome || counts === undefined || apiServers === undefined || watermark === undefined) {
    return undefined;
  }
  if (outcome === "current" && counts.changed + counts.notShown > 0) {
    return undefined;
  }
  return withoutUndefined<Verification>({
    resource,
    outcome,
    counts,
    apiServers,
    watermark,
    storageVersion: textIn(fields["storageVersion"]),
    crd: textIn(fields["crd"]),
    storageVersionHash: textIn(fields["storageVersionHash"]),
    encoding: wordIn(fields["encoding"], STORAGE_ENCODINGS),
    encryption: textIn(fields["encryption"]),
    changed: listIn(fields["changed"]).flatMap(notCurrentIn),
    notShown: listIn(fields["notShown"]).flatMap(failureIn),
  });
}

function wordIn<const Word extends string>(value: unknown, words: readonly Word[]): Word | undefined {
  return words.find((word) => word === value);
}

function namesIn(value: unknown): readonly string[] {
  return listIn(value).filter((item) => typeof item === "string");
}

/** `undefined` unless every one of the counts is there. */
function allIn<Name extends string>(value: unknown, names: readonly Name[]): Record<Name, number> | undefined {
  const fields = objectIn(value);
  const counts = names.map((name) => [name, countIn(fields?.[name])] as const);
  return counts.every(([, count]) => count !== undefined)
    ? (Object.fromEntries(counts) as Record<Name, number>)
    : undefined;
}

function countsIn(value: unknown): Counts | undefined {
  const counts = allIn(value, ["done", "migrated", "current", "newer", "gone", "failed", "changed"]);
  return counts === undefined ? undefined : { ...counts, total: countIn(objectIn(value)?.["total"]) };
}

function verificationCountsIn(value: unknown): VerificationCounts | undefined {
  return allIn(value, ["current", "changed", "gone", "notShown"]);
}

function shownOnIn(value: unknown): ShownOn | undefined {
  const fields = objectIn(value);
  const of = countIn(fields?.["of"]);
  return fields === undefined || !Array.isArray(fields["servers"])
    ? undefined
    : {
        servers: namesIn(fields["servers"]),
        ...(of === undefined ? {} : { of }),
        ...(fields["isShared"] === true ? { isShared: true } : {}),
      };
}

function objectNamedIn(value: unknown): readonly NamedObject[] {
  const fields = objectIn(value);
  const [name, namespace] = [textIn(fields?.["name"]), textIn(fields?.["namespace"])];
  return name === undefined ? [] : [namespace === undefined ? { name } : { name, namespace }];
}

function failureIn(value: unknown): readonly ObjectFailure[] {
  const reason = textIn(objectIn(value)?.["reason"]) ?? "";
  return objectNamedIn(value).map((object) => ({ ...object, reason }));
}

function notCurrentIn(value: unknown): readonly NotCurrent[] {
  const fields = objectIn(value);
  const doubt = wordIn(fields?.["doubt"], DOUBTS);
  const server = textIn(fields?.["server"]) ?? "";
  return objectNamedIn(value).map((object) => ({ ...object, server, ...(doubt === undefined ? {} : { doubt }) }));
}

function fieldsReportIn(value: unknown): FieldsReport | undefined {
  const counts = allIn(value, ["converted", "kept"]);
  return counts && { ...counts, keptObjects: listIn(objectIn(value)?.["keptObjects"]).flatMap(failureIn) };
}
