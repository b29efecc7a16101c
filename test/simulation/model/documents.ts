import { Refusal } from "./answers.ts";
import { type Fields, isFields, isSame, without } from "./etcd.ts";

/** What a merge patch makes of a value (RFC 7386). What it leaves alone is shared. */
export function mergePatched(target: unknown, patch: unknown): unknown {
  if (!isFields(patch)) return patch;
  const merged: Record<string, unknown> = isFields(target) ? { ...target } : {};
  for (const field in patch) {
    if (patch[field] === null) delete merged[field];
    else merged[field] = mergePatched(merged[field], patch[field]);
  }
  return merged;
}

interface Operation {
  readonly op: string;
  readonly path: string;
  readonly value?: unknown;
}

/**
 * What a JSON patch makes of a document (RFC 6902).
 * @throws {Refusal} 422 where an operation cannot be applied, as the API server answers it.
 */
export function jsonPatched(document: unknown, patch: unknown): unknown {
  return (patch as Operation[]).reduce((before, operation) => applyOperation(before, operation), document);
}

function applyOperation(document: unknown, { op, path, value }: Operation): unknown {
  switch (op) {
    case "add":
      return changed(document, pointer(path), (parent, key) => put(parent, key, { value, isNew: true }));
    case "replace":
      valueAt(document, pointer(path));
      return changed(document, pointer(path), (parent, key) => put(parent, key, { value, isNew: false }));
    case "remove":
      valueAt(document, pointer(path));
      return changed(document, pointer(path), remove);
    case "test":
      if (!isSame(valueAt(document, pointer(path), true) ?? null, value ?? null)) throw unprocessable();
      return document;
    default:
      throw unprocessable();
  }
}

function pointer(path: string): readonly string[] {
  return path
    .split("/")
    .slice(1)
    .map((part) => part.replaceAll("~1", "/").replaceAll("~0", "~"));
}

function valueAt(document: unknown, path: readonly string[], mayBeMissing = false): unknown {
  let value: unknown = document;
  for (const key of path) {
    if (Array.isArray(value)) value = value[Number(key)];
    else if (isFields(value)) value = value[key];
    else throw unprocessable();
  }
  if (value === undefined && !mayBeMissing) throw unprocessable();
  return value;
}

type Change = (parent: Fields | readonly unknown[], key: string) => unknown;

function changed(document: unknown, [key, ...rest]: readonly string[], change: Change): unknown {
  if (key === undefined || typeof document !== "object" || document === null) throw unprocessable();
  if (rest.length === 0) return change(document as Fields, key);
  if (Array.isArray(document)) {
    const at = Number(key);
    if (!(at in document)) throw unprocessable();
    return document.with(at, changed(document[at], rest, change));
  }
  const fields = document as Fields;
  if (fields[key] === undefined) throw unprocessable();
  return { ...fields, [key]: changed(fields[key], rest, change) };
}

function put(
  parent: Fields | readonly unknown[],
  key: string,
  { isNew, value }: { readonly value: unknown; readonly isNew: boolean },
): unknown {
  if (!Array.isArray(parent)) return { ...(parent as Fields), [key]: value };
  const at = key === "-" ? parent.length : Number(key);
  if (!Number.isInteger(at) || at < 0 || at > parent.length) throw unprocessable();
  return isNew ? parent.toSpliced(at, 0, value) : parent.with(at, value);
}

function remove(parent: Fields | readonly unknown[], key: string): unknown {
  if (Array.isArray(parent)) return parent.toSpliced(Number(key), 1);
  const { [key]: _removed, ...rest } = parent as Fields;
  return rest;
}

/** https://github.com/kubernetes/kubernetes/blob/v1.36.0/staging/src/k8s.io/apiserver/pkg/endpoints/handlers/patch.go */
function unprocessable(): Refusal {
  const message = "the server rejected our request due to an error in our request";
  return new Refusal({ code: 422, reason: "Invalid", details: {}, message });
}

/** A part of a structural schema (`openAPIV3Schema`), as far as the model looks at it. */
export interface Schema {
  readonly properties?: Readonly<Record<string, Schema>>;
  readonly additionalProperties?: Schema | boolean;
  readonly items?: Schema;
  readonly default?: unknown;
  readonly "x-kubernetes-preserve-unknown-fields"?: boolean;
}

/** Never pruned. */
const OF_EVERY_OBJECT = new Set(["apiVersion", "kind", "metadata"]);

/** An object without the fields that a schema does not know. */
export function pruned<T extends Fields>(object: T, schema: Schema | undefined): T {
  return schema === undefined ? object : (prune(object, schema, true) as T);
}

function prune(value: unknown, schema: Schema, isRoot = false): unknown {
  if (Array.isArray(value)) {
    const { items } = schema;
    const kept = items === undefined ? value : value.map((item) => prune(item, items));
    return isUnchanged(kept, value) ? value : kept;
  }
  const { additionalProperties, properties = {} } = schema;
  if (!isFields(value) || typeof additionalProperties === "boolean") return value;
  const isKept = schema["x-kubernetes-preserve-unknown-fields"] === true;
  const dropped: string[] = [];
  let changed: Record<string, unknown> | undefined;
  for (const field in value) {
    if (isRoot && OF_EVERY_OBJECT.has(field)) continue;
    const ofField = properties[field] ?? additionalProperties;
    const kept = ofField === undefined ? value[field] : prune(value[field], ofField);
    if (ofField === undefined && !isKept) dropped.push(field);
    else if (kept !== value[field]) (changed ??= {})[field] = kept;
  }
  return dropped.length === 0 && changed === undefined ? value : { ...without(value, ...dropped), ...changed };
}

/** An object with the fields that it lacks and that a schema has a default for: at its top, as no CRD of ksvm has another one. */
export function defaulted<T extends Fields>(object: T, schema: Schema | undefined): T {
  if (schema === undefined) return object;
  const lacking = defaultsOf(schema).filter(([name]) => object[name] === undefined);
  return lacking.length === 0 ? object : { ...object, ...Object.fromEntries(lacking) };
}

const defaults = new WeakMap<Schema, readonly (readonly [name: string, value: unknown])[]>();

/** What the fields at the top of a schema have by default, read once. */
function defaultsOf(schema: Schema): readonly (readonly [name: string, value: unknown])[] {
  let found = defaults.get(schema);
  if (found === undefined) {
    found = Object.entries(schema.properties ?? {}).flatMap(([name, ofField]) =>
      ofField.default === undefined ? [] : [[name, ofField.default] as const],
    );
    defaults.set(schema, found);
  }
  return found;
}

function isUnchanged(kept: readonly unknown[], value: readonly unknown[]): boolean {
  return kept.every((item, at) => item === value[at]);
}
