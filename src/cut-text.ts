/**
 * The text, or as much of its beginning as fits, with a note of how much there was. Never half a surrogate pair, which no API
 * server stores.
 *
 * @param maxLength UTF-16 code units of the result, at least a hundred
 */
export function cutText(text: string, maxLength: number): string {
  if (text.length <= maxLength) {
    return text.toWellFormed();
  }
  const note = `… (cut: ${text.length} characters)`;
  const end = maxLength - note.length;
  const isWithinPair = /^[\ud800-\udbff][\udc00-\udfff]$/.test(text.slice(end - 1, end + 1));
  return text.slice(0, isWithinPair ? end - 1 : end).toWellFormed() + note;
}

/** As many fields or objects as a line has room for. */
const NAMED = 5;

/** The first ones of some texts, in one line. */
export function named(texts: readonly string[], all = texts.length): string {
  const more = all > NAMED ? ` and ${all - NAMED} more` : "";
  return `${texts.slice(0, NAMED).join("; ")}${more}`;
}
