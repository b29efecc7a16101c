import {
  BACKSLASH,
  CLOSE_BRACE,
  CLOSE_BRACKET,
  COMMA,
  INVALID,
  OPEN_BRACE,
  OPEN_BRACKET,
  skipColon,
  skipSpace,
  skipString,
  skipValue,
} from "./json-scan.ts";

/**
 * What to keep of a JSON value: `"all"` of it, of an object the fields that are named, of an array every item, of a
 * `"scalar"` its text, number, boolean or null. Of an object or array where the projection expects another kind nothing is
 * kept but that it is one: it comes back empty.
 */
export type Projection = "all" | "scalar" | ObjectProjection | ArrayProjection | TextProjection;

/** Keeps the fields that are named. */
export interface ObjectProjection {
  readonly fields: Readonly<Record<string, Projection>>;
}

/** Keeps a text of at most so many UTF-16 code units. A field with a longer one, or with no text, counts as absent. */
export interface TextProjection {
  readonly maxLength: number;
}

/** The most bytes that JSON takes for one UTF-16 code unit: `\u0041`. */
const MAX_UNIT_BYTES = 6;

/** Keeps every item. */
export interface ArrayProjection {
  readonly items: Projection;
}

/** How much may be built of a JSON text. */
export interface ProjectionBudget {
  /** Objects, arrays and scalars, those included that a later field of the same name replaces. */
  readonly maxValues: number;
  /** Bytes of the scalars, as they stand in the text. */
  readonly maxBytes: number;
}

/** A JSON text holds more of what a projection keeps than its budget allows. */
export class OverBudget extends Error {
  override readonly name = "OverBudget";
}

const NO_BUDGET: ProjectionBudget = { maxValues: Number.POSITIVE_INFINITY, maxBytes: Number.POSITIVE_INFINITY };

/**
 * Reads of a JSON text what a projection keeps, without building the rest: the same as JSON.parse and then dropping it,
 * some times faster, and with next to no garbage.
 *
 * @param budget at the most; without one there is no end to it
 * @returns `undefined` where the text is not valid JSON as far as this function can tell: JSON.parse decides then. A
 * value that comes back is always right.
 * @throws {OverBudget}
 */
export function projectJson(
  bytes: Buffer,
  projection: Projection,
  budget: ProjectionBudget = NO_BUDGET,
): { readonly value: unknown } | undefined {
  const reader = new ProjectingReader(bytes, budget);
  const value = reader.read(skipSpace(bytes, 0), projection);
  return reader.end !== INVALID && skipSpace(bytes, reader.end) === bytes.length ? { value } : undefined;
}

/** Drops from a parsed value what a projection does not keep; what {@link projectJson} is measured against. */
export function prune(value: unknown, projection: Projection): unknown {
  if (projection === "all") {
    return value;
  }
  const limit = textIn(projection);
  if (limit !== undefined) {
    return shortText(value, limit);
  }
  if (Array.isArray(value)) {
    const items = arrayIn(projection)?.items;
    return items === undefined ? [] : value.map((item) => prune(item, items));
  }
  return typeof value === "object" && value !== null ? pruneObject(value, objectIn(projection)) : value;
}

function textIn(projection: Projection): TextProjection | undefined {
  return typeof projection === "object" && "maxLength" in projection ? projection : undefined;
}

function arrayIn(projection: Projection): ArrayProjection | undefined {
  return typeof projection === "object" && "items" in projection ? projection : undefined;
}

function objectIn(projection: Projection): ObjectProjection | undefined {
  return typeof projection === "object" && "fields" in projection ? projection : undefined;
}

function pruneObject(value: object, projection: ObjectProjection | undefined): unknown {
  const fields = Object.entries(projection?.fields ?? {}).filter(([name]) => Object.hasOwn(value, name));
  const pruned = fields.map(
    ([name, kept]) => [name, prune((value as Readonly<Record<string, unknown>>)[name], kept)] as const,
  );
  return Object.fromEntries(pruned.filter(([, one]) => one !== undefined));
}

function shortText(value: unknown, { maxLength }: TextProjection): string | undefined {
  return typeof value === "string" && value.length <= maxLength ? value : undefined;
}

class ProjectingReader {
  /** Behind the value that was read last, or INVALID once anything was wrong. */
  end = 0;
  readonly #bytes: Buffer;
  #valuesLeft: number;
  #bytesLeft: number;

  constructor(bytes: Buffer, { maxValues, maxBytes }: ProjectionBudget) {
    this.#bytes = bytes;
    this.#valuesLeft = maxValues;
    this.#bytesLeft = maxBytes;
  }

  read(at: number, projection: Projection): unknown {
    const opening = this.#bytes[at];
    const isContainer = opening === OPEN_BRACE || opening === OPEN_BRACKET;
    if (projection !== "all" && isContainer) {
      this.#spend(0);
      return this.#readContainer(at, opening, projection);
    }
    this.end = skipValue(this.#bytes, at);
    return this.end === INVALID ? undefined : this.#build(at, projection);
  }

  #readContainer(at: number, opening: number, projection: Projection): unknown {
    const object = opening === OPEN_BRACE ? objectIn(projection) : undefined;
    if (object !== undefined) {
      return this.#readObject(at, object);
    }
    const array = opening === OPEN_BRACKET ? arrayIn(projection) : undefined;
    if (array !== undefined) {
      return this.#readArray(at, array);
    }
    this.end = skipValue(this.#bytes, at);
    if (textIn(projection) !== undefined) {
      return undefined;
    }
    return opening === OPEN_BRACE ? {} : [];
  }

  /** Builds the value from `at` to the end, unless it is a text that is too long. */
  #build(at: number, projection: Projection): unknown {
    const limit = textIn(projection);
    // The two more are the quotes.
    if (limit !== undefined && this.end - at > limit.maxLength * MAX_UNIT_BYTES + 2) {
      return undefined;
    }
    this.#spend(this.end - at);
    const value: unknown = JSON.parse(this.#bytes.toString("utf8", at, this.end));
    return limit === undefined ? value : shortText(value, limit);
  }

  #spend(bytes: number): void {
    this.#valuesLeft--;
    this.#bytesLeft -= bytes;
    if (this.#valuesLeft < 0 || this.#bytesLeft < 0) {
      throw new OverBudget("the JSON text holds more than may be built of it");
    }
  }

  #readObject(at: number, projection: ObjectProjection): unknown {
    const { fields } = projection;
    const wanted = wantedKeysOf(projection);
    const object: Record<string, unknown> = {};
    let index = skipSpace(this.#bytes, at + 1);
    if (this.#bytes[index] === CLOSE_BRACE) {
      this.end = index + 1;
      return object;
    }
    do {
      const keyEnd = skipString(this.#bytes, index);
      const key = keyEnd === INVALID ? undefined : this.#wantedKey(index, keyEnd, wanted);
      const valueAt = skipColon(this.#bytes, keyEnd);
      if (key !== undefined) {
        // Of fields that come twice the last one counts, as for JSON.parse.
        const value = this.read(valueAt, fields[key] ?? "all");
        if (value === undefined) {
          delete object[key];
        } else {
          object[key] = value;
        }
      } else {
        this.end = skipValue(this.#bytes, valueAt);
      }
      index = this.#next(CLOSE_BRACE);
    } while (index !== INVALID);
    return object;
  }

  #readArray(at: number, { items }: ArrayProjection): unknown {
    const array: unknown[] = [];
    let index = skipSpace(this.#bytes, at + 1);
    if (this.#bytes[index] === CLOSE_BRACKET) {
      this.end = index + 1;
      return array;
    }
    do {
      array.push(this.read(index, items));
      index = this.#next(CLOSE_BRACKET);
    } while (index !== INVALID);
    return array;
  }

  /** Where the next entry begins; INVALID where the last one was read, {@link end} then says whether all is well. */
  #next(closing: number): number {
    const index = skipSpace(this.#bytes, this.end);
    if (this.#bytes[index] === COMMA) {
      return skipSpace(this.#bytes, index + 1);
    }
    this.end = this.#bytes[index] === closing ? index + 1 : INVALID;
    return INVALID;
  }

  /** The key from `at` to `end` where it is wanted. Most are not: nothing is built of them. */
  #wantedKey(at: number, end: number, { keys, longest }: WantedKeys): string | undefined {
    const length = end - at - 2;
    if (length > longest * MAX_UNIT_BYTES) {
      return undefined;
    }
    const found = keys.find((key) => key.bytes.length === length && this.#standsAt(at + 1, key.bytes));
    // A key of which a character is escaped may be one that is looked for.
    return found?.name ?? (this.#hasEscape(at, end) ? this.#escapedKey(at, end, keys) : undefined);
  }

  #standsAt(at: number, wanted: Uint8Array): boolean {
    for (let index = 0; index < wanted.length; index++) {
      if (this.#bytes[at + index] !== wanted[index]) {
        return false;
      }
    }
    return true;
  }

  #hasEscape(at: number, end: number): boolean {
    for (let index = at; index < end; index++) {
      if (this.#bytes[index] === BACKSLASH) {
        return true;
      }
    }
    return false;
  }

  /** It has to be built before it can be compared, and so counts. */
  #escapedKey(at: number, end: number, keys: WantedKeys["keys"]): string | undefined {
    this.#spend(end - at);
    const text = JSON.parse(this.#bytes.toString("utf8", at, end)) as string;
    return keys.find(({ name }) => name === text)?.name;
  }
}

/** The keys that a projection names, as they stand in a text. */
interface WantedKeys {
  readonly keys: readonly { readonly name: string; readonly bytes: Uint8Array }[];
  /** Bytes of the longest. */
  readonly longest: number;
}

const wantedKeys = new WeakMap<ObjectProjection, WantedKeys>();

function wantedKeysOf(projection: ObjectProjection): WantedKeys {
  let wanted = wantedKeys.get(projection);
  if (wanted === undefined) {
    const keys = Object.keys(projection.fields).map((name) => ({ name, bytes: Buffer.from(name) }));
    wanted = { keys, longest: Math.max(0, ...keys.map(({ bytes }) => bytes.length)) };
    wantedKeys.set(projection, wanted);
  }
  return wanted;
}
