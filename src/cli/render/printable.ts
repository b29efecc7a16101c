/**
 * Characters that a terminal acts on, or that reorder a line: names, messages and annotations come from any user who
 * may write them. A line break and a tab are the renderer's own.
 */
const CONTROL = /[\p{Cc}\u2028\u2029\u202A-\u202E\u2066-\u2069]/gu;

/**
 * A text as it may be written to a terminal, line breaks included. In a JSON document the escapes stand for the same
 * characters.
 */
export function printable(text: string): string {
  return text.replaceAll(CONTROL, (character) =>
    character === "\n" || character === "\t" ? character : escaped(character),
  );
}

/** Like {@link printable}, on one line: for a cell of a table, or a text that came from the cluster. */
export function oneLine(text: string): string {
  return text.replaceAll(CONTROL, escaped);
}

function escaped(character: string): string {
  return `\\u${(character.codePointAt(0) ?? 0).toString(16).padStart(4, "0")}`;
}
