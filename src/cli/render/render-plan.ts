import type { CountedEntry } from "../../plan/inventory.ts";
import { estimateCells } from "./estimate-cells.ts";
import { documentOf } from "./document.ts";
import { renderTable } from "./render-table.ts";
import { yamlText } from "./yaml-text.ts";

/** The values of `ksvm plan -o`. */
export const PLAN_FORMATS = ["table", "wide", "name", "json", "yaml"] as const;
/** One of {@link PLAN_FORMATS}. */
export type PlanFormat = (typeof PLAN_FORMATS)[number];

/** The text of a plan, without a line break at its end. */
export function renderPlan(entries: readonly CountedEntry[], format: PlanFormat): string {
  switch (format) {
    case "json":
      return JSON.stringify(documentOf("Plan", { items: entries }), undefined, 2);
    case "yaml":
      return yamlText(documentOf("Plan", { items: entries }));
    case "name":
      return entries.map(({ name }) => name).join("\n");
    case "table":
      return shortTable(entries);
    case "wide":
      return renderTable([
        [...TABLE_HEADER, "REQUESTS", "TIME", "KIND", "SERVED", "NOTE"],
        ...entries.map((entry) => [
          ...tableRow(entry),
          ...estimateCells(entry.estimate),
          entry.kind,
          entry.servedVersions.join(",") || "-",
          noteOf(entry) ?? "-",
        ]),
      ]);
  }
}

const TABLE_HEADER = ["NAME", "STORAGE", "STOREDVERSIONS", "OBJECTS", "ACTION", "REMOVABLE"];

/** With the reason where a row calls for one. */
function shortTable(entries: readonly CountedEntry[]): string {
  const reasons = entries.map(remarkOf);
  if (reasons.every((reason) => reason === undefined)) {
    return renderTable([TABLE_HEADER, ...entries.map(tableRow)]);
  }
  const rows = entries.map((entry, index) => [...tableRow(entry), reasons[index] ?? "-"]);
  return renderTable([[...TABLE_HEADER, "REASON"], ...rows]);
}

/** Everything there is to say of a resource in a plan; `undefined` where there is nothing. */
function noteOf(entry: CountedEntry): string | undefined {
  return joined(entry.note ?? reasonOf(entry), entry.pruneDoubt, conversionOf(entry));
}

/** What the short table says. */
function remarkOf(entry: CountedEntry): string | undefined {
  return joined(reasonOf(entry), entry.pruneDoubt, conversionOf(entry));
}

/** Once: a list that fails for it says the same. */
function conversionOf({ conversionProblem, note }: CountedEntry): string | undefined {
  return conversionProblem === undefined || note?.includes(conversionProblem) === true
    ? undefined
    : `its conversion webhook cannot be called: ${conversionProblem}`;
}

function joined(...parts: readonly (string | undefined)[]): string | undefined {
  const texts = parts.filter((part) => part !== undefined);
  return texts.length === 0 ? undefined : texts.join("; ");
}

/** Why a migration is blocked, nothing is known, or the objects are not counted; `undefined` for any other resource. */
function reasonOf({ action, note, objects }: CountedEntry): string | undefined {
  if (action === "unknown") {
    return note ?? "no StorageState shows how its objects are stored";
  }
  return action === "blocked" || objects === undefined ? (note ?? "its objects cannot be listed") : undefined;
}

function tableRow(entry: CountedEntry): readonly string[] {
  return [
    entry.name,
    entry.storageVersion ?? "-",
    entry.storedVersions?.join(",") ?? "-",
    entry.objects === undefined ? "?" : String(entry.objects),
    entry.action,
    entry.removableVersions.join(",") || "-",
  ];
}
