import { stringify } from "yaml";
import type { CountedEntry } from "../../plan/inventory.ts";
import { renderTable } from "./render-table.ts";

/** The values of `ksvm plan -o`. */
export const PLAN_FORMATS = ["table", "wide", "json", "yaml"] as const;
/** One of {@link PLAN_FORMATS}. */
export type PlanFormat = (typeof PLAN_FORMATS)[number];

/** The text of a plan, without a line break at its end. */
export function renderPlan(entries: readonly CountedEntry[], format: PlanFormat): string {
  switch (format) {
    case "json":
      return JSON.stringify({ items: entries }, undefined, 2);
    case "yaml":
      return stringify({ items: entries }).trimEnd();
    case "table":
      return renderTable([TABLE_HEADER, ...entries.map(tableRow)]);
    case "wide":
      return renderTable([
        [...TABLE_HEADER, "KIND", "SERVED", "NOTE"],
        ...entries.map((entry) => [
          ...tableRow(entry),
          entry.kind,
          entry.servedVersions.join(",") || "-",
          entry.note ?? "-",
        ]),
      ]);
  }
}

const TABLE_HEADER = ["NAME", "STORAGE", "STOREDVERSIONS", "OBJECTS", "ACTION", "REMOVABLE"];

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
