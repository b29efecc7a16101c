import { type JsonObject, objectIn } from "./json-fields.ts";

/** A schema may refer to no other one, so its depth is that of the text; deeper ones than any real schema are not looked into. */
const MAX_DEPTH = 64;

/** Every object has them, whether or not a schema describes them. */
const IMPLICIT = new Set(["apiVersion", "kind", "metadata"]);

/** Describes what is below a field that keeps what is unknown. */
const ANYTHING: JsonObject = { "x-kubernetes-preserve-unknown-fields": true };

/** The schema of one entry of `spec.versions`; `undefined` where it has none, or where it was not read. */
export function schemaOf(versions: readonly unknown[], name: string | undefined): JsonObject | undefined {
  const version = versions.map(objectIn).find((one) => one?.["name"] === name);
  return objectIn(objectIn(version?.["schema"])?.["openAPIV3Schema"]);
}

/**
 * The paths of fields that an object of the schema `known` may have, and that an API server prunes when it writes the object in the schema
 * `target`: `spec.size`, `spec.ports[].name`; `spec.*` where `known` takes any field. Empty where one of the two is missing.
 *
 * https://kubernetes.io/docs/tasks/extend-kubernetes/custom-resources/custom-resource-definitions/#field-pruning
 */
export function prunedFields(target: JsonObject | undefined, known: JsonObject | undefined): readonly string[] {
  return missingFrom(target, known, 0);
}

function missingFrom(target: JsonObject | undefined, known: JsonObject | undefined, depth: number): readonly string[] {
  if (target === undefined || known === undefined || depth > MAX_DEPTH) {
    return [];
  }
  const isEmbeddedIn = depth === 0 || isEmbedded(target);
  const fields = namesIn(target, known).flatMap((name) => {
    if (IMPLICIT.has(name) && isEmbeddedIn) {
      return [];
    }
    const there = objectIn(target["properties"])?.[name] ?? target["additionalProperties"];
    const isKept = (there !== undefined && there !== false) || keepsUnknown(target);
    return isKept ? below(name, missingFrom(objectIn(there), fieldOf(known, name), depth + 1)) : [name];
  });
  const inEach = (field: "items" | "additionalProperties"): readonly string[] =>
    missingFrom(objectIn(target[field]), objectIn(known[field]) ?? restOf(known), depth + 1);
  return [
    ...fields,
    ...(restOf(known) !== undefined && prunesUnknown(target) ? ["*"] : []),
    ...below("[]", inEach("items")),
    ...below("*", inEach("additionalProperties")),
  ];
}

/** Fields that one of the two may prune; of what `known` does not describe, those that `target` does. */
function namesIn(target: JsonObject, known: JsonObject): readonly string[] {
  const described = restOf(known) === undefined ? [] : Object.keys(objectIn(target["properties"]) ?? {});
  const implicit = isEmbedded(known) ? [...IMPLICIT] : [];
  return [...new Set([...Object.keys(objectIn(known["properties"]) ?? {}), ...implicit, ...described])];
}

function fieldOf(known: JsonObject, name: string): JsonObject | undefined {
  return objectIn(objectIn(known["properties"])?.[name]) ?? restOf(known);
}

/** What a schema lets through besides what it describes. */
function restOf(schema: JsonObject): JsonObject | undefined {
  return keepsUnknown(schema) ? ANYTHING : undefined;
}

function prunesUnknown(schema: JsonObject): boolean {
  const further = schema["additionalProperties"];
  return schema["type"] === "object" && !keepsUnknown(schema) && (further === undefined || further === false);
}

function below(parent: string, paths: readonly string[]): readonly string[] {
  return paths.map((path) => (path.startsWith("[]") ? `${parent}${path}` : `${parent}.${path}`));
}

function isEmbedded(schema: JsonObject): boolean {
  return schema["x-kubernetes-embedded-resource"] === true;
}

/** Of what it describes, too, unknown fields are pruned. */
function keepsUnknown(schema: JsonObject): boolean {
  return schema["x-kubernetes-preserve-unknown-fields"] === true;
}
