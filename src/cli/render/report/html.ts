import { cutText } from "../../../cut-text.ts";
import { oneLine } from "../printable.ts";

/** A message of an API server may quote an object, which may have megabytes; `-o json` of the other commands has the whole text. */
const MAX_TEXT_LENGTH = 4_000;

/** Text that is HTML. Only this module makes it, so that no text of a cluster is taken for it. */
class HtmlText {
  readonly #text: string;

  constructor(text: string) {
    this.#text = text;
  }

  toString(): string {
    return this.#text;
  }
}
export type { HtmlText as Html };

/** What can stand in HTML: a text, which is escaped; a number; HTML; nothing; or a list of these. */
export type Content = string | number | undefined | HtmlText | readonly Content[];

/**
 * HTML from a template: what stands between the values is HTML, and every value is escaped that is not HTML itself. A value can stand
 * in an element, or in an attribute between double quotes.
 */
export function html(strings: TemplateStringsArray, ...values: readonly Content[]): HtmlText {
  return new HtmlText(
    strings.map((part, index) => `${part}${index < values.length ? shown(values[index]) : ""}`).join(""),
  );
}

/** A style sheet of this program as an element, without anything that comes from elsewhere. */
export function styleElement(css: string): HtmlText {
  return new HtmlText(`<style>${css}</style>`);
}

function shown(value: Content): string {
  if (value instanceof HtmlText) {
    return value.toString();
  }
  if (typeof value === "object") {
    return value.map(shown).join("");
  }
  return value === undefined ? "" : escaped(String(value));
}

const ENTITIES: Readonly<Record<string, string>> = {
  "&": "&amp;",
  "<": "&lt;",
  ">": "&gt;",
  '"': "&quot;",
  "'": "&#39;",
};

/** Control characters, and those that reorder a line, are shown as escapes, as on a terminal. */
function escaped(text: string): string {
  return oneLine(cutText(text, MAX_TEXT_LENGTH)).replaceAll(/[&<>"']/g, (character) => ENTITIES[character] ?? "");
}
