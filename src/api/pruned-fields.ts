import { type JsonObject, objectIn } from "./json-fields.ts";

/**
 * A schema may refer to no other one, so its depth is that of the text; deeper ones than any real schema are not looked
 * into.
 */
const MAX_DEPTH = 64;

/** Every object has them, whether or not a schema describes them. */
const IMPLICIT = new Set(["apiVersion", "kind", "metadata"]);

const PRESERVE = "x-kubernetes-preserve-unknown-fields";

/** Describes what is below a field that keeps what is unknown. */
const ANYTHING: JsonObject = { [PRESERVE]: true };

/** Describes what is below `additionalProperties: true`: an API server prunes each object there to `{}`. */
const EMPTY_OBJECTS: JsonObject = { type: "object" };

/** The schema of one entry of `spec.versions`; `undefined` where it has none, or where it was not read. */
export function schemaOf(versions: readonly unknown[], name: string | undefined): JsonObject | undefined {
  const version = versions.map(objectIn).find((one) => one?.["name"] === name);
  return objectIn(objectIn(version?.["schema"])?.["openAPIV3Schema"]);
}

/**
 * The paths of fields that an object of the schema `known` may have, and that an API server prunes when it writes the
 * object in the schema `target`: `spec.size`, `spec.ports[].name`; `spec.*` where `known` takes any field, and
 * `spec.size: null` where it prunes the value `null` alone. Empty where one of the two is missing.
 *
 * https://github.com/kubernetes/kubernetes/blob/v1.36.0/staging/src/k8s.io/apiextensions-apiserver/pkg/apiserver/schema/pruning/algorithm.go
 */
export function prunedFields(target: JsonObject | undefined, known: JsonObject | undefined): readonly string[] {
  return missingFrom(target, known, 0);
}

function missingFrom(target: JsonObject | undefined, known: JsonObject | undefined, depth: number): readonly string[] {
  if (target === undefined || known === undefined || depth > MAX_DEPTH) {
    return [];
  }
  const isEmbeddedIn = depth === 0 || isEmbedded(target);
  const names = namesIn(target, known);
  const compared = names.filter((name) => !(isEmbeddedIn && IMPLICIT.has(name)));
  const fields = compared.flatMap((name) =>
    missingAt(name, [propertyOf(target, name) ?? furtherOf(target), fieldOf(known, name)], depth),
  );
  // What was no metadata of an object has other fields than an API server keeps of that.
  const hasMetadata = names.includes("metadata") || restOf(known) !== undefined;
  const isNewMetadata = isEmbeddedIn && depth > 0 && !isEmbedded(known) && hasMetadata;
  return [
    ...(isNewMetadata ? ["metadata.*"] : []),
    ...fields,
    ...missingFromRest(target, known, { depth, names: compared }),
    ...missingFromItems(target, known, depth),
  ];
}

/** @param there what `target` has for the field; `undefined` where it prunes it */
function missingAt(
  name: string,
  [there, known]: readonly [there: JsonObject | undefined, known: JsonObject | undefined],
  depth: number,
): readonly string[] {
  if (there === undefined) {
    return [name];
  }
  const nulls = known?.["nullable"] === true && prunesNull(there) ? [`${name}: null`] : [];
  return [...nulls, ...below(name, missingFrom(there, known, depth + 1))];
}

/** Of fields that `known` takes without a description, those that `target` does not describe. */
function missingFromRest(
  target: JsonObject,
  known: JsonObject,
  { depth, names }: { readonly depth: number; readonly names: readonly string[] },
): readonly string[] {
  const [further, rest] = [furtherOf(target), restOf(known)];
  if (rest === undefined || (further === undefined && target["type"] !== "object")) {
    return [];
  }
  const missing = further === ANYTHING ? [] : missingAt("*", [further, rest], depth);
  const undescribed = names.filter((name) => propertyOf(known, name) === undefined);
  const isNullPruned = [further, ...undescribed.map((name) => propertyOf(target, name))].some(prunesNull);
  return further !== undefined && !prunesNull(rest) && isNullPruned && !missing.includes("*: null")
    ? [...missing, "*: null"]
    : missing;
}

function missingFromItems(target: JsonObject, known: JsonObject, depth: number): readonly string[] {
  const there = target === EMPTY_OBJECTS ? EMPTY_OBJECTS : itemsOf(target);
  const items = itemsOf(known) ?? (target === EMPTY_OBJECTS ? undefined : restOf(known));
  // Without a default an API server refuses such an element, and takes no field away.
  const isNullReplaced =
    items !== undefined && !prunesNull(items) && there?.["default"] !== undefined && prunesNull(there);
  return [...(isNullReplaced ? ["[]: null"] : []), ...below("[]", missingFrom(there, items, depth + 1))];
}

/** Fields that one of the two may prune; of what `known` does not describe, those that `target` does. */
function namesIn(target: JsonObject, known: JsonObject): readonly string[] {
  const described = restOf(known) === undefined ? [] : Object.keys(objectIn(target["properties"]) ?? {});
  const implicit = isEmbedded(known) ? [...IMPLICIT] : [];
  return [...new Set([...Object.keys(objectIn(known["properties"]) ?? {}), ...implicit, ...described])];
}

function fieldOf(known: JsonObject, name: string): JsonObject | undefined {
  const implicit = isEmbedded(known) && IMPLICIT.has(name) ? ANYTHING : undefined;
  return implicit ?? propertyOf(known, name) ?? restOf(known);
}

function propertyOf(schema: JsonObject, name: string): JsonObject | undefined {
  const properties = objectIn(schema["properties"]) ?? {};
  return Object.hasOwn(properties, name) ? objectIn(properties[name]) : undefined;
}

/** What an API server keeps of a field that `target` does not describe; `undefined` where it prunes it. */
function furtherOf(target: JsonObject): JsonObject | undefined {
  return mapOf(target) ?? (keepsUnknown(target) ? ANYTHING : undefined);
}

/** What an object may have besides what the schema describes; `undefined` for nothing. */
function restOf(schema: JsonObject): JsonObject | undefined {
  return keepsUnknown(schema) ? ANYTHING : mapOf(schema);
}

function mapOf({ additionalProperties }: JsonObject): JsonObject | undefined {
  return additionalProperties === true ? EMPTY_OBJECTS : objectIn(additionalProperties);
}

/** A list that keeps what is unknown keeps it in its elements. */
function itemsOf(schema: JsonObject): JsonObject | undefined {
  const items = objectIn(schema["items"]);
  return items !== undefined && keepsUnknown(schema) ? { ...items, ...ANYTHING } : items;
}

/** Whether an API server takes `null` away, or puts a default in its place: where a schema describes the field. */
function prunesNull(schema: JsonObject | undefined): boolean {
  const isDescribed = schema !== undefined && schema !== ANYTHING && schema !== EMPTY_OBJECTS;
  return isDescribed && schema["nullable"] !== true;
}

function below(parent: string, paths: readonly string[]): readonly string[] {
  return paths.map((path) => (path.startsWith("[]") ? `${parent}${path}` : `${parent}.${path}`));
}

function isEmbedded(schema: JsonObject): boolean {
  return schema["x-kubernetes-embedded-resource"] === true;
}

/** Of what it describes, too, unknown fields are pruned. */
function keepsUnknown(schema: JsonObject): boolean {
  return schema[PRESERVE] === true;
}
