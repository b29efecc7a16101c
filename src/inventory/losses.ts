import { isDeepStrictEqual } from "node:util";
import { type JsonObject, objectIn } from "../api/json-fields.ts";
import type { Client } from "../kube/client.ts";
import { collectionPath, type Crd, hasConversionWebhook } from "../kube/objects.ts";
import { everyItem, objectsOf } from "./inventory.ts";
import { bringsOtherWebhook, type CrdManifest } from "./steps.ts";

/** A field that a schema lacks, such as `spec.size` or `spec.ports[].name`. Field names are those of `-o json`. */
export interface Loss {
  readonly path: string;
  /** How many objects have it. Missing where that was not counted. */
  readonly objects?: number;
}

/** More objects are not read one by one. */
export const MAX_COUNTED = 10_000;

/** `spec.size (3 objects)`. */
export function lossText({ objects, path }: Loss): string {
  return `${path} (${objects === undefined ? `not counted: more than ${MAX_COUNTED}` : objects} objects)`;
}

/**
 * The fields that an API server drops from the objects once a file is applied: no client reads them any more, and the
 * next write of an object drops them for good. It sends reads only.
 *
 * @param count of the objects
 * @returns those that an object has; where there are too many objects those that a schema of now describes and the
 * file's does not; `undefined` where neither is known
 * @throws {ApiError} where the objects cannot be read
 */
export async function readLosses(
  client: Client,
  live: Crd,
  file: CrdManifest,
  count: number,
  signal: AbortSignal,
): Promise<readonly Loss[] | undefined> {
  const { group, names, versions } = live.spec;
  const isConverted = hasConversionWebhook(live);
  // A webhook may move fields: only what it makes of an object for the file's storage version can be compared.
  const compared = versions.filter(({ name, served, storage }) =>
    isConverted ? served && name === file.target : storage || live.status?.storedVersions?.includes(name),
  );
  const version = isConverted ? compared[0]?.name : objectsOf(live).versions[0];
  // Nor is anything known of what a webhook will convert that nobody can ask yet.
  if (bringsOtherWebhook(file, live)) return undefined;
  const isOpen = live.spec.preserveUnknownFields === true;
  const isRead = count <= MAX_COUNTED;
  if (version === undefined || (isOpen && !isRead)) return undefined;
  const schema = schemaOf(file.versions.find(({ name }) => name === file.target));
  const schemas = compared.map(schemaOf);
  if (!isOpen && schemas.every((one) => isDeepStrictEqual(one, schema))) return [];
  const path = collectionPath({ group, version, plural: names.plural });
  const found = new Map<string, number>();
  for await (const object of isRead ? everyItem(client, path, signal) : schemas.map((one) => example(one ?? {}))) {
    for (const field of new Set(droppedFields(schema, object, true))) found.set(field, (found.get(field) ?? 0) + 1);
  }
  return [...found].map(([field, objects]) => (isRead ? { path: field, objects } : { path: field }));
}

function schemaOf(version: { readonly schema?: unknown } | undefined): JsonObject | undefined {
  return objectIn(objectIn(version?.schema)?.["openAPIV3Schema"]);
}

const PRESERVE = "x-kubernetes-preserve-unknown-fields";
/** Every object has them, whether or not a schema describes them. */
const META_FIELDS = new Set(["apiVersion", "kind", "metadata"]);

/**
 * The paths of the fields of a value that an API server drops as it reads the value by a schema.
 *
 * https://github.com/kubernetes/kubernetes/blob/v1.36.0/staging/src/k8s.io/apiextensions-apiserver/pkg/apiserver/schema/pruning/algorithm.go
 */
export function droppedFields(schema: JsonObject | undefined, value: unknown, isRoot = false): readonly string[] {
  const isKept = schema?.[PRESERVE] === true;
  if (Array.isArray(value)) {
    const items = objectIn(schema?.["items"]);
    // A list that keeps what is unknown keeps it in its elements.
    const element = items !== undefined && isKept ? { ...items, [PRESERVE]: true } : items;
    return value.flatMap((item) => under("[]", droppedFields(element, item)));
  }
  const hasMeta = isRoot || schema?.["x-kubernetes-embedded-resource"] === true;
  return Object.entries(objectIn(value) ?? {}).flatMap(([name, one]) => {
    if (hasMeta && META_FIELDS.has(name)) return [];
    const property = propertyOf(schema, name);
    if (property !== undefined) return under(name, droppedFields(property, one));
    return isKept ? [] : [name];
  });
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

/** A value with every field that a schema describes, and `*` for those that it leaves open. */
function example(schema: JsonObject): unknown {
  const { additionalProperties, items, properties } = schema;
  if (objectIn(items) !== undefined) return [example(objectIn(items) ?? {})];
  const isOpen = schema[PRESERVE] === true || additionalProperties === true;
  const fields = { ...objectIn(properties), "*": isOpen ? {} : additionalProperties };
  const described = Object.entries(fields).flatMap(([name, one]) => {
    const field = objectIn(one);
    return field === undefined ? [] : [[name, example(field)]];
  });
  return described.length === 0 ? "" : Object.fromEntries(described);
}
