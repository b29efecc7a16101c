import { badRequest, type InvalidField, Refusal } from "./answers.ts";
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
  readonly from?: string;
  readonly value?: unknown;
}

/**
 * What a JSON patch makes of a document (RFC 6902).
 * @throws {Refusal} 422 where an operation cannot be applied, as the API server answers it.
 */
export function jsonPatched(document: unknown, patch: unknown): unknown {
  if (!Array.isArray(patch)) throw badRequest("json: cannot unmarshal object into Go value of type jsonpatch.Patch");
  return (patch as Operation[]).reduce((before, operation) => applyOperation(before, operation), document);
}

function applyOperation(document: unknown, { from = "", op, path, value }: Operation): unknown {
  switch (op) {
    case "add":
      return changed(document, pointer(path), (parent, key) => put(parent, key, { value, isNew: true }));
    case "replace":
      valueAt(document, pointer(path));
      return changed(document, pointer(path), (parent, key) => put(parent, key, { value, isNew: false }));
    case "remove":
      valueAt(document, pointer(path));
      return changed(document, pointer(path), remove);
    case "copy":
      return applyOperation(document, { op: "add", path, value: valueAt(document, pointer(from)) });
    case "move": {
      const moved = valueAt(document, pointer(from));
      return applyOperation(applyOperation(document, { op: "remove", path: from }), { op: "add", path, value: moved });
    }
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
  readonly type?: string;
  readonly properties?: Readonly<Record<string, Schema>>;
  readonly additionalProperties?: Schema | boolean;
  readonly items?: Schema;
  readonly required?: readonly string[];
  readonly enum?: readonly unknown[];
  readonly default?: unknown;
  readonly minLength?: number;
  readonly maxLength?: number;
  readonly maxItems?: number;
  readonly minimum?: number;
  readonly pattern?: string;
  readonly format?: string;
  readonly "x-kubernetes-preserve-unknown-fields"?: boolean;
  readonly "x-kubernetes-validations"?: readonly { readonly rule: string; readonly message?: string }[];
}

/** A value at its place in an object. */
interface Place {
  readonly path: string;
  readonly schema: Schema;
  /** What was there before the update. */
  readonly before: unknown;
}

/** Never pruned and never checked here. */
const OF_EVERY_OBJECT = new Set(["apiVersion", "kind", "metadata"]);

/** The rules that CRDs of ksvm have, in CEL. A rule that is not here is a fault of the model. */
const RULES: Readonly<Record<string, (self: unknown, oldSelf: unknown) => boolean>> = {
  "self == oldSelf": (self, oldSelf) => oldSelf === undefined || isSame(self, oldSelf),
  [`self.metadata.name == self.spec.resource.resource + (has(self.spec.resource.group) && self.spec.resource.group != "" ? "." + self.spec.resource.group : "")`]:
    isNamedAsItsResource,
};

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

/** What of an object does not fit a schema. What has not changed since before is not looked at. */
export function misfits(
  object: Fields,
  before: Fields | undefined,
  schema: Schema | undefined,
): readonly InvalidField[] {
  if (schema === undefined || object === before) return [];
  const found = check(object, { path: "", schema, before });
  const isBlocked = found.some(({ reason = "" }) => BLOCKING.has(reason)) && hasRules(schema);
  return isBlocked ? [...found, { field: "<nil>", body: UNCHECKED }] : found;
}

/** After one of these no rule is evaluated. */
const BLOCKING = new Set(["FieldValueRequired", "FieldValueTooLong", "FieldValueTooMany", "FieldValueTypeInvalid"]);
const UNCHECKED =
  "Invalid value: null: some validation rules were not checked because the object was invalid; correct the existing " +
  "errors to complete validation";

function hasRules({ items, properties = {}, "x-kubernetes-validations": rulesHere }: Schema): boolean {
  return (
    rulesHere !== undefined || Object.values(properties).some(hasRules) || (items !== undefined && hasRules(items))
  );
}

function check(value: unknown, place: Place): readonly InvalidField[] {
  const { before, path, schema } = place;
  if (value === before) return [];
  const wrong = ownMisfit(value, schema);
  if (wrong !== undefined) return [{ field: path, ...wrong }];
  return [...inner(value, place), ...rules(value, { before, path, schema })];
}

function inner(value: unknown, { before, path, schema }: Place): readonly InvalidField[] {
  if (Array.isArray(value)) {
    const { items } = schema;
    if (items === undefined) return [];
    return value.flatMap((item, at) =>
      check(item, { path: `${path}[${at}]`, schema: items, before: Array.isArray(before) ? before[at] : undefined }),
    );
  }
  if (!isFields(value)) return [];
  const { properties = {}, required = [] } = schema;
  const missing = required.filter((field) => value[field] === undefined);
  const found = Object.entries(properties).flatMap(([field, ofField]) => {
    const isChecked = value[field] !== undefined && !(path === "" && OF_EVERY_OBJECT.has(field));
    const old = isFields(before) ? before[field] : undefined;
    return isChecked ? check(value[field], { path: under(path, field), schema: ofField, before: old }) : [];
  });
  return [...missing.map((field) => missingAt(under(path, field))), ...found];
}

function rules(value: unknown, { before, path, schema }: Place): readonly InvalidField[] {
  return (schema["x-kubernetes-validations"] ?? []).flatMap(({ message = "", rule }) => {
    const holds = RULES[rule];
    if (holds === undefined) throw new Error(`The model does not know the rule ${rule}`);
    return holds(value, before) ? [] : [{ field: path === "" ? "<nil>" : path, body: `Invalid value: ${message}` }];
  });
}

function ownMisfit(value: unknown, schema: Schema): Omit<InvalidField, "field"> | undefined {
  const type = typeOf(value);
  const isTyped = schema.type === undefined || schema.type === type || (schema.type === "number" && type === "integer");
  if (!isTyped)
    return { body: `Invalid value: "${type}": must be of type ${schema.type}`, reason: "FieldValueTypeInvalid" };
  if (schema.enum?.includes(value) === false)
    return { body: `Unsupported value: ${JSON.stringify(value)}`, reason: "FieldValueNotSupported" };
  if (typeof value === "string") return textMisfit(value, schema);
  if (typeof value === "number" && value < (schema.minimum ?? value))
    return misfit(`should be greater than or equal to ${schema.minimum}`);
  const { maxItems } = schema;
  const isLong = Array.isArray(value) && maxItems !== undefined && value.length > maxItems;
  return isLong
    ? { body: `Too many: ${value.length}: must have at most ${maxItems} items`, reason: "FieldValueTooMany" }
    : undefined;
}

function textMisfit(
  value: string,
  { format, maxLength, minLength = 0, pattern }: Schema,
): Omit<InvalidField, "field"> | undefined {
  if (maxLength !== undefined && value.length > maxLength) {
    return { body: `Too long: may not be more than ${maxLength} bytes`, reason: "FieldValueTooLong" };
  }
  if (value.length < minLength) return misfit(`should be at least ${minLength} chars long`);
  if (pattern !== undefined && !new RegExp(pattern).test(value)) return misfit(`should match '${pattern}'`);
  const isDate = format !== "date-time" || !Number.isNaN(Date.parse(value));
  return isDate ? undefined : misfit("must be of type date-time");
}

function misfit(why: string): Omit<InvalidField, "field"> {
  return { body: `Invalid value: ${why}` };
}

function missingAt(field: string): InvalidField {
  return { field, body: "Required value", reason: "FieldValueRequired" };
}

function typeOf(value: unknown): string {
  if (Array.isArray(value)) return "array";
  if (value === null) return "null";
  return Number.isInteger(value) ? "integer" : typeof value;
}

function under(path: string, field: string): string {
  return path === "" ? field : `${path}.${field}`;
}

function isNamedAsItsResource(self: unknown): boolean {
  const { metadata, spec } = self as {
    metadata: { name: string };
    spec?: { resource?: { group?: string; resource?: string } };
  };
  const { group = "", resource = "" } = spec?.resource ?? {};
  return metadata.name === resource + (group === "" ? "" : `.${group}`);
}
