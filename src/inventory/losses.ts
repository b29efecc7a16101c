import { type JsonObject, objectIn } from "../api/json-fields.ts";
import type { Client } from "../kube/client.ts";
import { collectionPath, type Crd, hasConversionWebhook, storageVersion } from "../kube/objects.ts";
import { Pages } from "../kube/pages.ts";
import type { CrdManifest } from "./manifests.ts";

/** A field that a schema lacks, such as `spec.size` or `spec.ports[].name`. Field names are those of `-o json`. */
export interface Loss {
  readonly path: string;
  /** How many objects have it. Missing where that was not counted. */
  readonly objects?: number;
}

/** More objects are not read one by one. */
export const MAX_COUNTED = 10_000;
const PATIENCE_MS = 5_000;

/** `spec.size (3 objects)`. */
export function lossText({ objects, path }: Loss): string {
  return `${path} (${objects === undefined ? `not counted: more than ${MAX_COUNTED}` : objects} objects)`;
}

/**
 * The fields that an API server drops from the objects once a file is applied: no client reads them any more, and the
 * next write of an object drops them for good. It sends reads only.
 *
 * @param count of the objects
 * @returns those that an object has; where there are too many objects those that one may have; `undefined` where
 * neither is known
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
  // A webhook may move fields, so that only what it makes of an object for the file's storage version can be compared.
  const compared = hasConversionWebhook(live)
    ? versions.filter(({ name }) => name === file.target)
    : versions.filter(({ name, storage }) => storage || live.status?.storedVersions?.includes(name));
  const schema = schemaOf(file.versions.find(({ name }) => name === file.target));
  const paths = [...new Set(compared.flatMap((version) => lostFields(schema, schemaOf(version))))];
  const isPrunedFirst = live.spec.preserveUnknownFields === true && file.spec["preserveUnknownFields"] !== true;
  if (paths.length === 0 && !isPrunedFirst) return [];
  if (count > MAX_COUNTED) return isPrunedFirst ? undefined : paths.map((path) => ({ path }));
  const readIn = hasConversionWebhook(live) ? file.target : storageVersion(live);
  const served = versions.filter((version) => version.served).map(({ name }) => name);
  const order = [...served.filter((name) => name === readIn), ...served.filter((name) => name !== readIn)];
  const collections = order.map((version) => collectionPath({ group, version, plural: names.plural }));
  const pages = new Pages(client, collections, signal, "application/json", PATIENCE_MS);
  const found = new Map<string, number>();
  let token: string | undefined;
  do {
    const page = await pages.list(token);
    token = page.metadata.continue || undefined;
    for (const object of page.items) {
      for (const path of new Set(droppedFields(schema, object, true))) found.set(path, (found.get(path) ?? 0) + 1);
    }
  } while (token !== undefined);
  return [...found].map(([path, objects]) => ({ path, objects }));
}

function schemaOf(version: { readonly schema?: unknown } | undefined): JsonObject | undefined {
  return objectIn(objectIn(version?.schema)?.["openAPIV3Schema"]);
}

const PRESERVE = "x-kubernetes-preserve-unknown-fields";
const ANYTHING: JsonObject = { [PRESERVE]: true };
/** Every object has them, whether or not a schema describes them. */
const META_FIELDS = new Set(["apiVersion", "kind", "metadata"]);

function isMeta(schema: JsonObject | undefined, name: string, isRoot: boolean): boolean {
  return (isRoot || schema?.["x-kubernetes-embedded-resource"] === true) && META_FIELDS.has(name);
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

/** A list that keeps what is unknown keeps it in its elements. */
function itemsOf(schema: JsonObject | undefined): JsonObject | undefined {
  const items = objectIn(schema?.["items"]);
  return items !== undefined && schema?.[PRESERVE] === true ? { ...items, ...ANYTHING } : items;
}

/**
 * The paths of the fields of a value that an API server drops as it reads the value by a schema.
 *
 * https://github.com/kubernetes/kubernetes/blob/v1.36.0/staging/src/k8s.io/apiextensions-apiserver/pkg/apiserver/schema/pruning/algorithm.go
 */
export function droppedFields(schema: JsonObject | undefined, value: unknown, isRoot = false): readonly string[] {
  const isKept = schema?.[PRESERVE] === true;
  if (Array.isArray(value)) {
    return value.flatMap((item) => under("[]", droppedFields(itemsOf(schema), item)));
  }
  return Object.entries(objectIn(value) ?? {}).flatMap(([name, one]) => {
    if (isMeta(schema, name, isRoot)) return [];
    const property = propertyOf(schema, name);
    if (property !== undefined) return under(name, droppedFields(property, one));
    return isKept ? [] : [name];
  });
}

/** The same of every value that another schema allows, with `*` for fields that neither names. */
export function lostFields(
  schema: JsonObject | undefined,
  known: JsonObject | undefined,
  isRoot = true,
): readonly string[] {
  if (schema === undefined || known === undefined) return [];
  const open = known[PRESERVE] === true ? ANYTHING : propertyOf({ ...known, properties: {} }, "");
  // A value that is no object has no fields to drop.
  const rest = ["array", "boolean", "integer", "number", "string"].includes(String(schema["type"])) ? undefined : open;
  // What one of the two describes; of an open object, what the other one describes, too.
  const described = [known, ...(rest === undefined ? [] : [schema])].flatMap((one) =>
    Object.keys(objectIn(one["properties"]) ?? {}),
  );
  const names = [...new Set(described)].filter((name) => !isMeta(schema, name, isRoot));
  const fields = [...names, ...(rest === undefined ? [] : ["*"])].flatMap((name) => {
    const property = propertyOf(schema, name);
    if (property !== undefined) return under(name, lostFields(property, propertyOf(known, name) ?? rest, false));
    return schema[PRESERVE] === true ? [] : [name];
  });
  return [...fields, ...under("[]", lostFields(itemsOf(schema) ?? {}, itemsOf(known), false))];
}

function under(parent: string, paths: readonly string[]): readonly string[] {
  return paths.map((path) => (path.startsWith("[]") ? `${parent}${path}` : `${parent}.${path}`));
}
