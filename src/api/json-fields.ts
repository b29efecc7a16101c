/**
 * Readers for parts of an object that another client wrote. Each returns `undefined` for what is absent, null or of
 * another type, and never throws, so that a parser names what is wrong in words of its own.
 */

/** An object that is no list. */
export type JsonObject = Readonly<Record<string, unknown>>;

/** The value, where it is an object and no list. */
export function objectIn(value: unknown): JsonObject | undefined {
  return typeof value === "object" && value !== null && !Array.isArray(value) ? (value as JsonObject) : undefined;
}

/** The value, where it is a list; empty where it is anything else. */
export function listIn(value: unknown): readonly unknown[] {
  return Array.isArray(value) ? value : [];
}

/** The text, where it is one; cut at `maxLength` characters. */
export function textIn(value: unknown, maxLength = Number.POSITIVE_INFINITY): string | undefined {
  return typeof value === "string" ? value.slice(0, maxLength) : undefined;
}

/** The number, where it is a whole one, not negative, and exact in a double. */
export function countIn(value: unknown): number | undefined {
  return typeof value === "number" && Number.isSafeInteger(value) && value >= 0 ? value : undefined;
}

/** Whether there is an integer beyond 2^53 in it, which JSON.parse has rounded. */
export function hasUnsafeInteger(value: unknown): boolean {
  if (typeof value === "object" && value !== null) return Object.values(value).some(hasUnsafeInteger);
  return Number.isInteger(value) && !Number.isSafeInteger(value);
}

/** The text, where it is a time that can be read. */
export function timeIn(value: unknown): string | undefined {
  return typeof value === "string" && !Number.isNaN(Date.parse(value)) ? value : undefined;
}

/** Whether there is nothing to read: absent, or null, which some API servers keep where a field was cleared. */
export function isAbsent(value: unknown): value is undefined | null {
  return value === undefined || value === null;
}

/** The entries whose values are texts. */
export function textsIn(value: unknown): Readonly<Record<string, string>> | undefined {
  const fields = objectIn(value);
  return fields === undefined
    ? undefined
    : Object.fromEntries(
        Object.entries(fields).filter((entry): entry is [string, string] => typeof entry[1] === "string"),
      );
}

/** Removes the fields that are undefined, which a type with optional fields does not take. */
export function withoutUndefined<T extends object>(fields: { readonly [K in keyof T]: T[K] | undefined }): T {
  return Object.fromEntries(Object.entries(fields).filter(([, value]) => value !== undefined)) as T;
}
