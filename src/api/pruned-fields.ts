import { type JsonObject, objectIn } from "./json-fields.ts";

const PRESERVE = "x-kubernetes-preserve-unknown-fields";
/** Every object has them, whether or not a schema describes them. */
const META_FIELDS = new Set(["apiVersion", "kind", "metadata"]);

/**
 * The paths of the fields of a value that an API server drops as it reads the value by a schema.
 *
 * https://github.com/kubernetes/kubernetes/blob/v1.36.0/staging/src/k8s.io/apiextensions-apiserver/pkg/apiserver/schema/pruning/algorithm.go
 * @param isApply finds the fields that fail a server-side apply as `not declared in schema`, instead. An apply takes an
 * object without described fields for open, except at the root.
 */
export function droppedFields(
  schema: JsonObject | undefined,
  value: unknown,
  isRoot = false,
  isApply = false,
): readonly string[] {
  const { additionalProperties, items: element, properties, type = "object" } = schema ?? {};
  const isPlain = type === "object" && (properties ?? additionalProperties ?? element) === undefined;
  const isOpen = isApply && !isRoot && isPlain;
  const isKept = isOpen || schema?.[PRESERVE] === true;
  if (Array.isArray(value)) {
    const items = objectIn(element);
    // A list that keeps what is unknown keeps it in its elements.
    const schemaOfItems = isKept ? { ...items, [PRESERVE]: true } : items;
    return value.flatMap((item) => under("[]", droppedFields(schemaOfItems, item, false, isApply)));
  }
  const hasMeta = isRoot || schema?.["x-kubernetes-embedded-resource"] === true;
  return Object.entries(objectIn(value) ?? {}).flatMap(([name, one]) => {
    if (hasMeta && META_FIELDS.has(name)) return [];
    const property = propertyOf(schema, name);
    if (property !== undefined) return under(name, droppedFields(property, one, false, isApply));
    return isKept ? [] : [name];
  });
}

/**
 * A value with every field that a schema allows and another one may drop: those that it describes, and where it leaves
 * any other open, those that the next one describes, and `*`.
 */
export function example(schema: JsonObject, next: JsonObject | undefined): unknown {
  const isOpen = schema[PRESERVE] === true;
  const items = objectIn(schema["items"]) ?? (isOpen ? objectIn(next?.["items"]) && {} : undefined);
  // A list that keeps what is unknown keeps it in its elements.
  if (items !== undefined) return [example(isOpen ? { ...items, [PRESERVE]: true } : items, objectIn(next?.["items"]))];
  if (isOpen && next === undefined) return { "*": "" };
  const isText = isOpen && ["string", "integer", "number", "boolean"].includes(String(next?.["type"]));
  const { additionalProperties } = schema;
  // An API server keeps no field below additionalProperties: true.
  const further = isOpen ? { [PRESERVE]: true } : additionalProperties === true ? {} : objectIn(additionalProperties);
  const meta = schema["x-kubernetes-embedded-resource"] === true ? [...META_FIELDS] : [];
  const fields = new Map<string, unknown>(meta.map((name) => [name, {}]));
  if (further !== undefined && !isText) {
    for (const name of [...Object.keys(objectIn(next?.["properties"]) ?? {}), "*"]) fields.set(name, further);
  }
  for (const [name, field] of Object.entries(objectIn(schema["properties"]) ?? {})) fields.set(name, field);
  if (fields.size === 0) return "";
  return Object.fromEntries(
    [...fields].map(([name, field]) => [name, example(objectIn(field) ?? {}, propertyOf(next, name))]),
  );
}

/** The schema of one of `spec.versions`; `undefined` where it has none. */
export function schemaOf(version: { readonly schema?: unknown } | undefined): JsonObject | undefined {
  return objectIn(objectIn(version?.schema)?.["openAPIV3Schema"]);
}

/**
 * The schema of a field: one without fields for `additionalProperties: true`, below which an API server keeps no field;
 * `undefined` where the schema does not describe it.
 */
function propertyOf(schema: JsonObject | undefined, name: string): JsonObject | undefined {
  const properties = objectIn(schema?.["properties"]) ?? {};
  if (Object.hasOwn(properties, name)) return objectIn(properties[name]);
  const further = schema?.["additionalProperties"];
  return further === true ? {} : objectIn(further);
}

function under(parent: string, paths: readonly string[]): readonly string[] {
  return paths.map((path) => (path.startsWith("[]") ? `${parent}${path}` : `${parent}.${path}`));
}
