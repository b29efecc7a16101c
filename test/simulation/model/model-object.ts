/** A part of an object of the model. Nothing that was stored or answered is ever changed: a change makes a new one. */
export type Fields = Readonly<Record<string, unknown>>;

/** The metadata of an object of the model, as JSON has it. */
export interface ModelMeta {
  readonly name?: string;
  readonly generateName?: string;
  readonly namespace?: string;
  readonly uid?: string;
  /** Not stored: etcd's revision of the last write, as every read fills it in. */
  readonly resourceVersion?: string;
  readonly generation?: number;
  readonly creationTimestamp?: string;
  readonly deletionTimestamp?: string;
  readonly finalizers?: readonly string[];
  readonly labels?: Readonly<Record<string, string>>;
  readonly annotations?: Readonly<Record<string, string>>;
  readonly managedFields?: readonly ManagedEntry[];
  readonly [field: string]: unknown;
}

/** One entry of `metadata.managedFields`. */
export interface ManagedEntry {
  readonly manager: string;
  readonly operation: "Apply" | "Update";
  readonly apiVersion: string;
  readonly time?: string;
  readonly fieldsType: "FieldsV1";
  readonly fieldsV1: Fields;
  readonly subresource?: string;
}

/** An object of the model. */
export interface ModelObject {
  readonly apiVersion: string;
  readonly kind: string;
  readonly metadata: ModelMeta;
  readonly [field: string]: unknown;
}

/** Whether a value is a JSON object, and no list. */
export function isFields(value: unknown): value is Fields {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

/** Whether two JSON values are the same, whatever the order of their fields. Shared parts cost nothing. */
export function isSame(a: unknown, b: unknown): boolean {
  if (a === b) return true;
  if (typeof a !== "object" || typeof b !== "object" || a === null || b === null) return false;
  if (Array.isArray(a) || Array.isArray(b)) {
    return Array.isArray(a) && Array.isArray(b) && a.length === b.length && a.every((item, at) => isSame(item, b[at]));
  }
  const [left, right] = [a as Fields, b as Fields];
  let count = 0;
  for (const field in left) {
    if (left[field] === undefined) continue;
    count++;
    if (!isSame(left[field], right[field])) return false;
  }
  for (const field in right) if (right[field] !== undefined) count--;
  return count === 0;
}

/** The same without some fields; the object itself where it has none of them. */
export function without<T extends Fields>(object: T, ...fields: readonly string[]): T {
  if (!fields.some((field) => field in object)) return object;
  // An object from which something was deleted is slow ever after.
  const rest: Record<string, unknown> = {};
  for (const field in object) if (!fields.includes(field)) rest[field] = object[field];
  return rest as T;
}
