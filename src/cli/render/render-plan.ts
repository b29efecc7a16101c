import { fieldVersionsText } from "../../inventory/inventory.ts";
import type { PlanEntry } from "../../inventory/plan.ts";
import { documentOf } from "./document.ts";
import { renderTable } from "./render-table.ts";
import { yamlText } from "./yaml-text.ts";

/** The values of `ksvm plan -o`. */
export const PLAN_FORMATS = ["table", "wide", "name", "json", "yaml"] as const;
/** One of {@link PLAN_FORMATS}. */
export type PlanFormat = (typeof PLAN_FORMATS)[number];

/** The text of a plan, without a line break at its end. */
export function renderPlan(entries: readonly PlanEntry[], format: PlanFormat): string {
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
        [...TABLE_HEADER, "KIND", "SERVED", "NOTE"],
        ...entries.map((entry) => [
          ...tableRow(entry),
          entry.kind,
          entry.servedVersions.join(",") || "-",
          noteOf(entry),
        ]),
      ]);
  }
}

const TABLE_HEADER = ["NAME", "STORAGE", "STOREDVERSIONS", "OBJECTS", "ACTION", "REMOVABLE"];

/** With the notes where there is one. */
function shortTable(entries: readonly PlanEntry[]): string {
  const notes = entries.map(noteOf);
  const hasNotes = notes.some((note) => note !== "-");
  const rows = entries.map((entry, index) => [...tableRow(entry), ...(hasNotes ? [notes[index] ?? "-"] : [])]);
  return renderTable([[...TABLE_HEADER, ...(hasNotes ? ["NOTE"] : [])], ...rows]);
}

/** Everything there is to say of a resource. */
function noteOf({ action, conversion, help, managedFields, name, note }: PlanEntry): string {
  const unknown = action === "unknown" ? "no StorageState shows how its objects are stored" : undefined;
  const remedy =
    conversion === undefined
      ? `ksvm migrate ${name} --force names the storage version instead`
      : "ksvm migrate -f FILE --apply drops it and what names it";
  const fields =
    managedFields &&
    `${fieldVersionsText(managedFields)}: a server-side apply of them fails once the CRD drops it; ${remedy}`;
  return [note ?? unknown, help && `help: ${help}`, fields].filter((text) => text !== undefined).join("; ") || "-";
}

function tableRow(entry: PlanEntry): readonly string[] {
  return [
    entry.name,
    entry.storageVersion ?? "-",
    entry.storedVersions?.join(",") ?? "-",
    entry.objects === undefined ? "?" : String(entry.objects),
    entry.action,
    entry.removableVersions.join(",") || "-",
  ];
}
