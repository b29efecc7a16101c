import { CLOSE_BRACE, COMMA, INVALID, OPEN_BRACE, skipColon, skipSpace, skipString, skipValue } from "./json-scan.ts";

/** Where a value lies in a text: from `start` up to but not including `end`. */
export interface Span {
  readonly start: number;
  readonly end: number;
}

/**
 * Where the values of the named fields of the object at `at` lie, none of them built. Of a field that comes twice the
 * last one counts, as for JSON.parse. A key is found as it is spelled: one with an escaped character is not.
 *
 * @returns `undefined` where no valid object is there, as far as json-scan can tell.
 */
export function fieldSpans(bytes: Buffer, at: number, names: readonly string[]): Map<string, Span> | undefined {
  const spans = new Map<string, Span>();
  if (bytes[at] !== OPEN_BRACE) {
    return undefined;
  }
  let index = skipSpace(bytes, at + 1);
  if (bytes[index] === CLOSE_BRACE) {
    return spans;
  }
  for (;;) {
    const keyEnd = skipString(bytes, index);
    const start = skipColon(bytes, keyEnd);
    const end = skipValue(bytes, start);
    if (end === INVALID) {
      return undefined;
    }
    // Keys are short; what would be built is the value.
    const key = bytes.toString("utf8", index + 1, keyEnd - 1);
    if (names.includes(key)) {
      spans.set(key, { start, end });
    }
    index = skipSpace(bytes, end);
    if (bytes[index] !== COMMA) {
      return bytes[index] === CLOSE_BRACE ? spans : undefined;
    }
    index = skipSpace(bytes, index + 1);
  }
}
