import type { ReleaseEntry } from "../../plan/release/check-release.ts";
import type { ReleaseCheck } from "../../plan/release/release-facts.ts";
import type { ResultFormat } from "../flags/run-flags.ts";
import { oneLine } from "./printable.ts";
import { documentOf } from "./document.ts";
import { renderResult } from "./render-result.ts";
import { renderTable } from "./render-table.ts";

/** The text of a check of another release, without a line break at its end. */
export function renderRelease(check: ReleaseCheck, format: ResultFormat): string {
  return renderResult(documentOf("ControlPlaneCheck", check), format, () => [
    tableOf(check),
    ...detailsOf(check),
    [summaryOf(check), ...check.notes.map(noteOf)].join("\n"),
  ]);
}

/** In front of a reason that several resources share. */
const MOST_NAMES = 5;
const HEADER = ["NAME", "VERDICT", "WRITES", "MAYBESTORED", "OBJECTS"];

function isProblem({ verdict }: ReleaseEntry): boolean {
  return verdict !== "readable";
}

/** Only what a user has to look at: a cluster has some 60 built-in resources. */
function tableOf({ items }: ReleaseCheck): string {
  const rows = items
    .filter(isProblem)
    .map((entry) => [
      entry.name,
      entry.verdict,
      entry.writes ?? "-",
      entry.stored.join(",") || "-",
      entry.objects === undefined ? "-" : String(entry.objects),
    ]);
  return rows.length === 0 ? "" : renderTable([HEADER, ...rows]);
}

/** Each reason once, with all the resources that it is about. */
function detailsOf({ items }: ReleaseCheck): readonly string[] {
  const byText = new Map<string, ReleaseEntry[]>();
  for (const entry of items.filter(isProblem)) {
    const text = JSON.stringify([entry.reason, entry.steps]);
    byText.set(text, [...(byText.get(text) ?? []), entry]);
  }
  return [...byText.values()].map((entries) => {
    const [{ reason, steps } = { reason: "", steps: [] }] = entries;
    return [`${namesText(entries)}: ${reason}`, ...steps.map((step, index) => `  ${index + 1}. ${step}`)]
      .map(oneLine)
      .join("\n");
  });
}

/** The table has all of them. */
function namesText(entries: readonly ReleaseEntry[]): string {
  const names = entries.slice(0, MOST_NAMES).map(({ name }) => name);
  return [names.join(", "), ...(entries.length > MOST_NAMES ? [`and ${entries.length - MOST_NAMES} more`] : [])].join(
    " ",
  );
}

function summaryOf({ items, release, running, tableOf: patch }: ReleaseCheck): string {
  const readable = items.length - items.filter(isProblem).length;
  return oneLine(
    `Kubernetes ${release} (as ${patch}) reads all objects of ${readable} of ${items.length} built-in resources; the API server runs ${running}`,
  );
}

function noteOf(note: string): string {
  return oneLine(`note: ${note}`);
}
