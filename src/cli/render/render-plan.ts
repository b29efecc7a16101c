import { fieldVersionsText } from "../../inventory/inventory.ts";
import type { PlanEntry } from "../../inventory/plan.ts";
import { documentOf } from "./document.ts";
import { estimateCells } from "./estimate-cells.ts";
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
function shortTable(entries: readonly PlanEntry[]): string {
  const reasons = entries.map(remarkOf);
  if (reasons.every((reason) => reason === undefined)) {
    return renderTable([TABLE_HEADER, ...entries.map(tableRow)]);
  }
  const rows = entries.map((entry, index) => [...tableRow(entry), reasons[index] ?? "-"]);
  return renderTable([[...TABLE_HEADER, "REASON"], ...rows]);
}

/** Everything there is to say of a resource in a plan; `undefined` where there is nothing. */
function noteOf(entry: PlanEntry): string | undefined {
  return joined(entry.note ?? reasonOf(entry), ...furtherOf(entry));
}

/** What the short table says. */
function remarkOf(entry: PlanEntry): string | undefined {
  return joined(reasonOf(entry), ...furtherOf(entry));
}

function furtherOf(entry: PlanEntry): readonly (string | undefined)[] {
  const { conversionProblem, help, note, pruneDoubt } = entry;
  // Once: a list that fails for it says the same.
  const isSaid = conversionProblem === undefined || note?.includes(conversionProblem) === true;
  const conversion = isSaid ? undefined : `its conversion webhook cannot be called: ${conversionProblem}`;
  return [help === undefined ? undefined : `help: ${help}`, pruneDoubt, conversion, fieldsTextOf(entry)];
}

function fieldsTextOf({ conversion, managedFields, name }: PlanEntry): string | undefined {
  if (managedFields === undefined) return undefined;
  const fails = "a server-side apply of them fails once the CRD drops it";
  const help =
    conversion === undefined
      ? `ksvm migrate ${name} --force names the storage version instead`
      : "ksvm migrate -f FILE --apply drops it and what names it";
  return `${fieldVersionsText(managedFields)}: ${fails}; ${help}`;
}

function joined(...parts: readonly (string | undefined)[]): string | undefined {
  const texts = parts.filter((part) => part !== undefined);
  return texts.length === 0 ? undefined : texts.join("; ");
}

/** Why nothing can be done, nothing is known, or the objects are not counted; `undefined` for any other resource. */
function reasonOf({ action, help, note, objects }: PlanEntry): string | undefined {
  if (action === "unknown") {
    return note ?? "no StorageState shows how its objects are stored";
  }
  const isDue = action === "blocked" || help !== undefined || objects === undefined;
  return isDue ? (note ?? "its objects cannot be listed") : undefined;
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
