import type { Finding } from "../../inventory/doctor.ts";
import type { ResultFormat } from "../flags/run-flags.ts";
import { oneLine } from "./printable.ts";
import { documentOf } from "./document.ts";
import { renderResult } from "./render-result.ts";
import { renderTable } from "./render-table.ts";

/** What was found. Field names are those of `ksvm doctor -o json`. */
export interface DoctorResult {
  readonly items: readonly Finding[];
  /** CRDs that were looked at. */
  readonly lookedAt: number;
  /** What a repair would do to which CRD; missing where none was asked for, or it was carried out. */
  readonly repairs?: readonly { readonly name: string; readonly steps: readonly string[] }[];
}

/** The text of a diagnosis, without a line break at its end. */
export function renderDoctor(result: DoctorResult, format: ResultFormat): string {
  return renderResult(documentOf("Diagnosis", result), format, () =>
    result.items.length === 0
      ? [`nothing found: ${result.lookedAt} ${result.lookedAt === 1 ? "CRD" : "CRDs"} looked at`]
      : [
          renderTable([HEADER, ...result.items.map(rowOf)]),
          ...result.items.map(detailsOf),
          ...repairTexts(result.repairs),
        ],
  );
}

const HEADER = ["FINDING", "OBJECT", "VERSIONS", "OBJECTS", "COMMAND"];

function rowOf({ finding, help, object, objects, versions = [] }: Finding): readonly string[] {
  return [finding, object, versions.join(",") || "-", objects === undefined ? "-" : String(objects), help];
}

function detailsOf({ help, meaning, object }: Finding): string {
  return [`${object}: ${meaning}`, `  help: ${help}`].map(oneLine).join("\n");
}

function repairTexts(repairs: DoctorResult["repairs"]): readonly string[] {
  if (repairs === undefined) {
    return [];
  }
  const texts = repairs.map(({ name, steps }) =>
    [`repair of ${name}:`, ...steps.map((step, index) => `  ${index + 1}. ${step}`)].map(oneLine).join("\n"),
  );
  const end = repairs.length === 0 ? "there is nothing that --repair does" : "nothing was changed; to do it, add --yes";
  return [...texts, end];
}
