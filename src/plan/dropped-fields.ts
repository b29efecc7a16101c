import { type CustomResourceDefinition, storedVersionsOf } from "../api/crd.ts";
import { type JsonObject, listIn, objectIn } from "../api/json-fields.ts";
import type { CrdManifest } from "./crd-manifests.ts";
import { losesConversion, strategyOf, targetVersionOf } from "./version-changes.ts";

/** A field that objects of a CRD may have, and that the API server drops with a file. */
export interface DroppedField {
  /** Such as `spec.size` or `spec.ports[].name`. */
  readonly path: string;
  /** The versions whose schema has it. */
  readonly versions: readonly string[];
}

/** A schema may refer to no other one, so its depth is that of the text; deeper ones than any real schema are not looked into. */
const MAX_DEPTH = 64;

/**
 * Fields of the versions that objects may be stored in which the schema of the file's storage version does not have: the API server prunes
 * them when it reads an object, so that they are gone with its next write. Empty where a webhook converts, which may move them.
 *
 * https://kubernetes.io/docs/tasks/extend-kubernetes/custom-resources/custom-resource-definitions/#field-pruning
 */
export function droppedFieldsOf(manifest: CrdManifest, live: CustomResourceDefinition): readonly DroppedField[] {
  const spec = objectIn(manifest.object["spec"]) ?? {};
  const isConverted = strategyOf(manifest) !== "None" || losesConversion(manifest, live);
  const target = schemaOf(listIn(spec["versions"]), targetVersionOf(manifest));
  if (isConverted || target === undefined) {
    return [];
  }
  const versions = new Map<string, string[]>();
  for (const name of storedVersionsOf(live)) {
    for (const path of missingFrom(target, schemaOf(live.spec.versions, name), 0)) {
      versions.set(path, [...(versions.get(path) ?? []), name]);
    }
  }
  return [...versions].map(([path, names]) => ({ path, versions: names }));
}

function schemaOf(versions: readonly unknown[], name: string | undefined): JsonObject | undefined {
  const version = versions.map(objectIn).find((one) => one?.["name"] === name);
  return objectIn(objectIn(version?.["schema"])?.["openAPIV3Schema"]);
}

/** The paths of fields that `known` describes, and `target` does not let through. */
function missingFrom(target: JsonObject | undefined, known: JsonObject | undefined, depth: number): readonly string[] {
  if (target === undefined || known === undefined || depth > MAX_DEPTH) {
    return [];
  }
  const fields = Object.entries(objectIn(known["properties"]) ?? {}).flatMap(([name, schema]) => {
    const there = objectIn(target["properties"])?.[name] ?? target["additionalProperties"];
    const isThere = there !== undefined && there !== false;
    const isKept = isThere || keepsUnknown(target) || (IMPLICIT.has(name) && (depth === 0 || isEmbedded(target)));
    return isKept ? below(name, missingFrom(objectIn(there), objectIn(schema), depth + 1)) : [name];
  });
  const inEach = (field: "items" | "additionalProperties"): readonly string[] =>
    missingFrom(objectIn(target[field]), objectIn(known[field]), depth + 1);
  return [...fields, ...below("[]", inEach("items")), ...below("*", inEach("additionalProperties"))];
}

function below(parent: string, paths: readonly string[]): readonly string[] {
  return paths.map((path) => (path.startsWith("[]") ? `${parent}${path}` : `${parent}.${path}`));
}

/** Every object has them, whether or not a schema describes them. */
const IMPLICIT = new Set(["apiVersion", "kind", "metadata"]);

function isEmbedded(schema: JsonObject): boolean {
  return schema["x-kubernetes-embedded-resource"] === true;
}

/** Of what it describes, too, unknown fields are pruned. */
function keepsUnknown(schema: JsonObject): boolean {
  return schema["x-kubernetes-preserve-unknown-fields"] === true;
}
