/*
 * Walks over JSON in UTF-8 without building it, as strictly as JSON.parse (RFC 8259). Every function takes the index
 * where something begins and returns the index behind it, or INVALID where no valid JSON is there. INVALID may be handed
 * on: nothing is found at that index, as behind the end.
 */

/** What a scan returns for anything that is not valid JSON; all other results are indices. */
export const INVALID = -1;

export const QUOTE = 0x22;
export const COMMA = 0x2c;
const COLON = 0x3a;
export const BACKSLASH = 0x5c;
export const OPEN_BRACKET = 0x5b;
export const CLOSE_BRACKET = 0x5d;
export const OPEN_BRACE = 0x7b;
export const CLOSE_BRACE = 0x7d;

/** Levels of nesting that are followed. A schema uses some dozens; JSON.parse, which takes what is left, has no limit. */
export const MAX_DEPTH = 1_000;

/** 1 for every byte that may stand in a string as it is: all but `"`, `\` and the control characters. */
const PLAIN = Uint8Array.from({ length: 256 }, (_, byte) =>
  byte < 0x20 || byte === QUOTE || byte === BACKSLASH ? 0 : 1,
);
const ESCAPED = new Set(bytesOf('"\\/bfnrt'));
const [TRUE, FALSE, NULL] = ["true", "false", "null"].map(bytesOf) as [Literal, Literal, Literal];
const [U, MINUS, PLUS, POINT, ZERO, SMALL_E, LARGE_E] = bytesOf("u-+.0eE");

/** 1 for every byte with which a number goes on behind a digit. */
const GOES_ON = Uint8Array.from({ length: 256 }, (_, byte) =>
  Number(isDigit(byte) || [POINT, SMALL_E, LARGE_E].includes(byte)),
);

type Literal = readonly number[];

/** Behind the whitespace at `at`, which may be none. */
export function skipSpace(bytes: Uint8Array, at: number): number {
  let index = at;
  for (;;) {
    const byte = bytes[index] ?? 0;
    if (byte > 0x20 || (byte !== 0x20 && byte !== 0x0a && byte !== 0x0d && byte !== 0x09)) {
      return index;
    }
    index++;
  }
}

/** Behind the string at `at`. */
export function skipString(bytes: Uint8Array, at: number): number {
  let index = bytes[at] === QUOTE ? at + 1 : INVALID;
  while (index !== INVALID) {
    while (PLAIN[bytes[index] ?? 0] === 1) {
      index++;
    }
    const byte = bytes[index];
    if (byte === QUOTE) {
      return index + 1;
    }
    index = byte === BACKSLASH ? skipEscape(bytes, index + 1) : INVALID;
  }
  return INVALID;
}

/** The value that belongs to the key which ends before `at`. */
export function skipColon(bytes: Uint8Array, at: number): number {
  const colon = skipSpace(bytes, at);
  return bytes[colon] === COLON ? skipSpace(bytes, colon + 1) : INVALID;
}

/** Behind the value at `at`, whatever it is, and all that is in it. */
export function skipValue(bytes: Uint8Array, at: number, depth = 0): number {
  switch (bytes[at]) {
    case QUOTE:
      return skipString(bytes, at);
    case OPEN_BRACE:
      return depth === MAX_DEPTH ? INVALID : skipObject(bytes, at, depth + 1);
    case OPEN_BRACKET:
      return depth === MAX_DEPTH ? INVALID : skipArray(bytes, at, depth + 1);
    default:
      return skipScalar(bytes, at);
  }
}

function skipObject(bytes: Uint8Array, at: number, depth: number): number {
  let index = skipSpace(bytes, at + 1);
  if (bytes[index] === CLOSE_BRACE) {
    return index + 1;
  }
  for (;;) {
    index = skipColon(bytes, skipString(bytes, index));
    index = skipSpace(bytes, skipValue(bytes, index, depth));
    if (bytes[index] !== COMMA) {
      return bytes[index] === CLOSE_BRACE ? index + 1 : INVALID;
    }
    index = skipSpace(bytes, index + 1);
  }
}

function skipArray(bytes: Uint8Array, at: number, depth: number): number {
  let index = skipSpace(bytes, at + 1);
  if (bytes[index] === CLOSE_BRACKET) {
    return index + 1;
  }
  for (;;) {
    index = skipSpace(bytes, skipValue(bytes, index, depth));
    if (bytes[index] !== COMMA) {
      return bytes[index] === CLOSE_BRACKET ? index + 1 : INVALID;
    }
    index = skipSpace(bytes, index + 1);
  }
}

function skipScalar(bytes: Uint8Array, at: number): number {
  switch (bytes[at]) {
    case TRUE[0]:
      return skipLiteral(bytes, at, TRUE);
    case FALSE[0]:
      return skipLiteral(bytes, at, FALSE);
    case NULL[0]:
      return skipLiteral(bytes, at, NULL);
    default:
      // Bodies that are made to take time hold millions of numbers of one digit.
      return isDigit(bytes[at]) && GOES_ON[bytes[at + 1] ?? 0] === 0 ? at + 1 : skipNumber(bytes, at);
  }
}

function skipLiteral(bytes: Uint8Array, at: number, literal: Literal): number {
  for (let offset = 1; offset < literal.length; offset++) {
    if (bytes[at + offset] !== literal[offset]) {
      return INVALID;
    }
  }
  return at + literal.length;
}

function skipNumber(bytes: Uint8Array, at: number): number {
  const first = bytes[at] === MINUS ? at + 1 : at;
  let end = bytes[first] === ZERO ? first + 1 : skipDigits(bytes, first);
  if (end !== INVALID && bytes[end] === POINT) {
    end = skipDigits(bytes, end + 1);
  }
  if (end !== INVALID && (bytes[end] === SMALL_E || bytes[end] === LARGE_E)) {
    const sign = bytes[end + 1];
    end = skipDigits(bytes, sign === PLUS || sign === MINUS ? end + 2 : end + 1);
  }
  return end;
}

function skipDigits(bytes: Uint8Array, at: number): number {
  let index = at;
  while (isDigit(bytes[index])) {
    index++;
  }
  return index === at ? INVALID : index;
}

function skipEscape(bytes: Uint8Array, at: number): number {
  if (bytes[at] !== U) {
    return ESCAPED.has(bytes[at] ?? 0) ? at + 1 : INVALID;
  }
  for (let index = at + 1; index <= at + 4; index++) {
    if (!isHexDigit(bytes[index])) {
      return INVALID;
    }
  }
  return at + 5;
}

function isDigit(byte: number | undefined): boolean {
  return byte !== undefined && byte >= 0x30 && byte <= 0x39;
}

function isHexDigit(byte: number | undefined): boolean {
  // Sets bit 5, which makes A to F lower case.
  const lower = (byte ?? 0) | 0x20;
  return isDigit(byte) || (lower >= 0x61 && lower <= 0x66);
}

function bytesOf(text: string): readonly number[] {
  return [...Buffer.from(text)];
}
