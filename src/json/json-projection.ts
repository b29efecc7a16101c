import {
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
 * What to keep of a JSON value: `"all"` of it, of an object the fields that are named, of an array every item. A value
 * of another kind than the projection expects is kept whole.
 */
export type Projection = "all" | ObjectProjection | ArrayProjection | TextProjection;

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

/**
 * Reads of a JSON text what a projection keeps, without building the rest: the same as JSON.parse and then dropping it,
 * some times faster, and with next to no garbage.
 *
 * @returns `undefined` where the text is not valid JSON as far as this function can tell: JSON.parse decides then. A
 * value that comes back is always right.
 */
export function projectJson(bytes: Buffer, projection: Projection): { readonly value: unknown } | undefined {
  const reader = new ProjectingReader(bytes);
  const value = reader.read(skipSpace(bytes, 0), projection);
  return reader.end !== INVALID && skipSpace(bytes, reader.end) === bytes.length ? { value } : undefined;
}

/** Drops from a parsed value what a projection does not keep; what {@link projectJson} is measured against. */
export function prune(value: unknown, projection: Projection): unknown {
  if (projection !== "all" && "maxLength" in projection) {
    return shortText(value, projection);
  }
  if (projection === "all" || typeof value !== "object" || value === null) {
    return value;
  }
  if ("items" in projection) {
    return Array.isArray(value) ? value.map((item) => prune(item, projection.items)) : value;
  }
  return Array.isArray(value) ? value : pruneObject(value as Readonly<Record<string, unknown>>, projection);
}

function pruneObject(value: Readonly<Record<string, unknown>>, { fields }: ObjectProjection): unknown {
  const kept = Object.entries(fields).filter(([name]) => Object.hasOwn(value, name));
  const pruned = kept.map(([name, projection]) => [name, prune(value[name], projection)] as const);
  return Object.fromEntries(pruned.filter(([, one]) => one !== undefined));
}

function shortText(value: unknown, { maxLength }: TextProjection): string | undefined {
  return typeof value === "string" && value.length <= maxLength ? value : undefined;
}

class ProjectingReader {
  /** Behind the value that was read last, or INVALID once anything was wrong. */
  end = 0;
  readonly #bytes: Buffer;

  constructor(bytes: Buffer) {
    this.#bytes = bytes;
  }

  read(at: number, projection: Projection): unknown {
    const opening = this.#bytes[at];
    if (projection !== "all" && opening === OPEN_BRACE && "fields" in projection) {
      return this.#readObject(at, projection);
    }
    if (projection !== "all" && opening === OPEN_BRACKET && "items" in projection) {
      return this.#readArray(at, projection);
    }
    this.end = skipValue(this.#bytes, at);
    return this.end === INVALID ? undefined : this.#build(at, projection);
  }

  /** Builds the value from `at` to the end, unless it is a text that is too long. */
  #build(at: number, projection: Projection): unknown {
    const limit = projection !== "all" && "maxLength" in projection ? projection : undefined;
    // The two more are the quotes.
    if (limit !== undefined && this.end - at > limit.maxLength * MAX_UNIT_BYTES + 2) {
      return undefined;
    }
    const value: unknown = JSON.parse(this.#bytes.toString("utf8", at, this.end));
    return limit === undefined ? value : shortText(value, limit);
  }

  #readObject(at: number, { fields }: ObjectProjection): unknown {
    const object: Record<string, unknown> = {};
    let index = skipSpace(this.#bytes, at + 1);
    if (this.#bytes[index] === CLOSE_BRACE) {
      this.end = index + 1;
      return object;
    }
    do {
      const keyEnd = skipString(this.#bytes, index);
      const key = keyEnd === INVALID ? "" : this.#keyAt(index, keyEnd);
      const valueAt = skipColon(this.#bytes, keyEnd);
      if (Object.hasOwn(fields, key)) {
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

  /** A key of which one character is escaped may be one that is looked for. */
  #keyAt(at: number, end: number): string {
    const text = this.#bytes.toString("utf8", at, end);
    return text.includes("\\") ? (JSON.parse(text) as string) : text.slice(1, -1);
  }
}
