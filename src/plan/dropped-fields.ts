import { type CustomResourceDefinition, storedVersionsOf } from "../api/crd.ts";
import { listIn, objectIn } from "../api/json-fields.ts";
import { prunedFields, schemaOf } from "../api/pruned-fields.ts";
import type { CrdManifest } from "./crd-manifests.ts";
import { losesConversion, strategyOf, targetVersionOf } from "./version-changes.ts";

/** A field that objects of a CRD may have, and that the API server drops with a file. */
export interface DroppedField {
  /** Such as `spec.size` or `spec.ports[].name`. */
  readonly path: string;
  /** The versions whose schema has it. */
  readonly versions: readonly string[];
}

/**
 * Fields of the versions that objects may be stored in which the schema of the file's storage version does not have:
 * the API server prunes them when it reads an object, so that they are gone with its next write. Empty where a webhook
 * converts, which may move them.
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
    for (const path of prunedFields(target, schemaOf(live.spec.versions, name))) {
      versions.set(path, [...(versions.get(path) ?? []), name]);
    }
  }
  return [...versions].map(([path, names]) => ({ path, versions: names }));
}
