import { isDeepStrictEqual } from "node:util";
import { droppedFields, example, schemaOf } from "../api/pruned-fields.ts";
import type { Client } from "../kube/client.ts";
import { collectionPath, type Crd, hasConversionWebhook } from "../kube/objects.ts";
import { everyItem } from "./inventory.ts";
import { CRD_FIELD_MANAGER } from "../freeze/rule.ts";
import { pruneDoubt, storedVersionsOwner } from "../migrator/crd-state.ts";
import type { CrdManifest } from "./steps.ts";

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
  return `${path} (${objects === undefined ? "not counted" : `${objects} objects`})`;
}

/**
 * The fields that an API server drops from the objects once a file is applied: no client reads them any more, and the
 * next write of an object drops them for good. It sends reads only.
 *
 * @param count of the objects; none is read where there are too many
 * @returns `undefined` where nothing is known
 * @throws {ApiError} where the objects cannot be read
 */
export async function readLosses(
  client: Client,
  live: Crd,
  file: Pick<CrdManifest, "target" | "versions">,
  count: number,
  signal: AbortSignal,
): Promise<readonly Loss[] | undefined> {
  const { group, names, preserveUnknownFields: isOpen = false, versions } = live.spec;
  const schema = schemaOf(file.versions.find(({ name }) => name === file.target));
  const isRead = count <= MAX_COUNTED;
  const owner = storedVersionsOwner(live);
  const isDoubtful = pruneDoubt(live) !== undefined || (owner !== undefined && owner !== CRD_FIELD_MANAGER);
  const mayBeStored = (name: string): boolean => live.status?.storedVersions?.includes(name) === true || isDoubtful;
  // Of a CRD that preserves unknown fields, an object may have more than the schema of the version that it is stored in.
  const isDropping = (name: string): boolean => name === file.target || (isOpen && mayBeStored(name));
  const schemas = file.versions.filter(({ name }) => isDropping(name)).map(schemaOf);
  // Each is read: one may show what another hides. Of what a webhook converts, only the file's storage version is.
  const compared = versions.filter(({ name, served, storage }) => {
    if (hasConversionWebhook(live)) return served && name === file.target;
    return (served && isRead) || (!isOpen && (storage || mayBeStored(name)));
  });
  if (compared.length === 0 || schema === undefined) return undefined;
  const found = new Map<string, number>();
  for (const version of compared.filter((one) => isOpen || !isDeepStrictEqual(schemaOf(one), schema))) {
    const isCounted = isRead && version.served;
    const path = collectionPath({ group, version: version.name, plural: names.plural });
    const counts = new Map<string, number>();
    const any = example(schemaOf(version) ?? {}, schema);
    for await (const object of isCounted ? everyItem(client, path, signal) : [any]) {
      const dropped = new Set(schemas.flatMap((one) => droppedFields(one, object, true)));
      for (const field of dropped) counts.set(field, (counts.get(field) ?? 0) + 1);
    }
    for (const [field, objects] of counts) found.set(field, Math.max(found.get(field) ?? 0, isCounted ? objects : 0));
  }
  return [...found].map(([path, objects]) => (objects === 0 ? { path } : { path, objects }));
}
