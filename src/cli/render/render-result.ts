import type { ResultFormat } from "../flags/run-flags.ts";
import { yamlText } from "./yaml-text.ts";

/**
 * The text of a result, without a line break at its end.
 * @param tables the parts of the text for people, of which empty ones are left out
 */
export function renderResult(result: object, format: ResultFormat, tables: () => readonly string[]): string {
  switch (format) {
    case "json":
      return JSON.stringify(result, undefined, 2);
    case "yaml":
      return yamlText(result);
    case "table":
      return tables()
        .filter((text) => text !== "")
        .join("\n\n");
  }
}

/**
 * The text of a result that people read as lines, without a line break at its end.
 * @param text what they read
 */
export function renderTextOr(result: object, format: "text" | "json" | "yaml", text: () => string): string {
  return format === "text" ? text() : renderResult(result, format, () => []);
}
