import type { CheckEntry } from "../../plan/check-types.ts";
import { estimateCells } from "./estimate-cells.ts";
import type { ResultFormat } from "../flags/run-flags.ts";
import { oneLine } from "./printable.ts";
import { documentOf } from "./document.ts";
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
  return renderResult(documentOf("Check", result), format, () => [
    renderTable([HEADER, ...result.items.map(rowOf)]),
    ...result.items.map(detailsOf),
    ignoredText(result),
  ]);
}

const HEADER = ["NAME", "VERDICT", "STORAGE", "STOREDVERSIONS", "DROPPED", "OBJECTS", "REQUESTS", "TIME"];

function rowOf({ estimate, ...entry }: CheckEntry): readonly string[] {
  return [
    entry.name,
    entry.verdict,
    entry.storageVersion ?? "-",
    entry.storedVersions?.join(",") ?? "-",
    entry.removedVersions.join(",") || "-",
    entry.objects === undefined ? "-" : String(entry.objects),
    ...estimateCells(estimate),
  ];
}

/** The sentence, the word of the API server, what to do, and what else there is to know. */
function detailsOf(entry: CheckEntry): string {
  const { apiServer, name, notes, reason, steps } = entry;
  const isPlain = entry.verdict === "applicable" && notes.length === 0;
  if (isPlain) {
    return "";
  }
  return [
    `${name}: ${reason}`,
    ...(apiServer === undefined ? [] : [`  API server: ${apiServer}`]),
    ...steps.map((step, index) => `  ${index + 1}. ${step}`),
    ...notes.map((note) => `  note: ${note}`),
  ]
    .map(oneLine)
    .join("\n");
}

function ignoredText({ ignored }: CheckResult): string {
  return ignored === 0 ? "" : `${ignored} ${ignored === 1 ? "object" : "objects"} of other kinds ignored`;
}
