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
