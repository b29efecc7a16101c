import type { CheckEntry } from "../../inventory/upgrade.ts";
import type { ResultFormat } from "../flags/run-flags.ts";
import { documentOf } from "./document.ts";
import { oneLine } from "./printable.ts";
import { renderResult } from "./render-result.ts";
import { renderTable } from "./render-table.ts";

/** What was checked. Field names are those of `ksvm check -o json`. */
export interface CheckResult {
  readonly items: readonly CheckEntry[];
  /** Objects of other kinds in the files. */
  readonly ignored: number;
}

/** The text of a check, without a line break at its end. */
export function renderCheck(result: CheckResult, format: ResultFormat): string {
  const { ignored, items } = result;
  return renderResult(documentOf("Check", result), format, () => [
    renderTable([HEADER, ...items.map(rowOf)]),
    ...items.map((entry) => (isPlain(entry) ? "" : describeEntry(entry).join("\n"))),
    ignored === 0 ? "" : `${ignored} ${ignored === 1 ? "object" : "objects"} of other kinds ignored`,
  ]);
}

/** The table says it all. */
function isPlain({ notes, steps, verdict }: CheckEntry): boolean {
  return verdict === "applicable" && notes.length === 0 && steps.length === 1;
}

const HEADER = ["NAME", "VERDICT", "STORAGE", "STOREDVERSIONS", "DROPPED", "OBJECTS"];

function rowOf({ name, objects, removedVersions, storageVersion, storedVersions, verdict }: CheckEntry) {
  const dropped = removedVersions.join(",") || "-";
  return [name, verdict, storageVersion ?? "-", storedVersions?.join(",") ?? "-", dropped, String(objects ?? "-")];
}

/** Why, the word of the API server, the steps, and what else there is to know: a line each. */
export function describeEntry({ apiServer, help, name, notes, reason, source, steps }: CheckEntry): readonly string[] {
  const command = `ksvm migrate -f ${source === "stdin" ? "-" : source}`;
  const isMigration = steps.some(({ kind }) => kind === "migrate");
  return [
    `${name}: ${reason}`,
    ...(apiServer === undefined ? [] : [`  API server: ${apiServer}`]),
    ...steps.flatMap(({ does, kind, why }, index) => [`  ${index + 1}. ${kind}: ${does}`, `     why: ${why}`]),
    ...(steps.length > 1
      ? [`  ${command} --apply does that${isMigration ? "; without --apply, all but the file itself" : ""}`]
      : []),
    ...help.map((one) => `  what helps: ${one}`),
    ...notes.map((note) => `  note: ${note}`),
  ].map(oneLine);
}

/** Why a file is not reached, and what helps. */
export function describeRefusal({ help, reason, verdict }: CheckEntry): string {
  return [`${verdict}: ${reason}`, ...help.map((one) => `what helps: ${one}`)].join("; ");
}
