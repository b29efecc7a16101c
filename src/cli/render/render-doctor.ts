import { stringify } from "yaml";
import type { Finding } from "../../doctor/doctor-types.ts";
import { oneLine } from "./printable.ts";
import { renderTable } from "./render-table.ts";

/** The values of `ksvm doctor -o`. */
export const DOCTOR_FORMATS = ["table", "json", "yaml"] as const;
/** One of {@link DOCTOR_FORMATS}. */
export type DoctorFormat = (typeof DOCTOR_FORMATS)[number];

/** What was found. Field names are those of `ksvm doctor -o json`. */
export interface DoctorResult {
  readonly items: readonly Finding[];
  /** CRDs that were looked at. */
  readonly lookedAt: number;
}

/** The text of a diagnosis, without a line break at its end. */
export function renderDoctor(result: DoctorResult, format: DoctorFormat): string {
  switch (format) {
    case "json":
      return JSON.stringify(result, undefined, 2);
    case "yaml":
      return stringify(result).trimEnd();
    case "table":
      return result.items.length === 0
        ? `nothing found: ${result.lookedAt} ${result.lookedAt === 1 ? "CRD" : "CRDs"} looked at`
        : [renderTable([HEADER, ...result.items.map(rowOf)]), ...result.items.map(detailsOf)].join("\n\n");
  }
}

const HEADER = ["FINDING", "OBJECT", "VERSIONS", "OBJECTS", "COMMAND"];

function rowOf({ finding, help, object, objects, versions = [] }: Finding): readonly string[] {
  return [finding, object, versions.join(",") || "-", objects === undefined ? "-" : String(objects), help];
}

function detailsOf({ help, meaning, object }: Finding): string {
  return [`${object}: ${meaning}`, `  help: ${help}`].map(oneLine).join("\n");
}
