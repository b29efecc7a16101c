import { type CrdVersion, type CustomResourceDefinition, storageVersionOf, storedVersionsOf } from "../api/crd.ts";
import { type JsonObject, listIn, objectIn } from "../api/json-fields.ts";
import type { CrdManifest } from "./crd-manifests.ts";

/** The storage version of a file; `undefined` where it has none, which the API server refuses. */
export function targetVersionOf({ versions }: CrdManifest): string | undefined {
  return versions.find(({ storage }) => storage)?.name;
}

/** Whether a file has a version. */
export function hasVersion({ versions }: CrdManifest, name: string): boolean {
  return versions.some((version) => version.name === name);
}

/** The versions of the CRD in the cluster that a file does not have. */
export function removedVersionsOf(manifest: CrdManifest, live: CustomResourceDefinition): readonly CrdVersion[] {
  return live.spec.versions.filter(({ name }) => !hasVersion(manifest, name));
}

/** Versions that the file drops and storedVersions does not list: the API server lets them go. */
export function unlistedVersionsOf(manifest: CrdManifest, live: CustomResourceDefinition): readonly string[] {
  const stored = storedVersionsOf(live);
  return removedVersionsOf(manifest, live).flatMap(({ name }) => (stored.includes(name) ? [] : [name]));
}

/**
 * The first of two steps for a file that drops the storage version: the file, and what it drops and objects may be stored in.
 * `undefined` for any other file.
 */
export function intermediateOf(manifest: CrdManifest, live: CustomResourceDefinition): JsonObject | undefined {
  if (hasVersion(manifest, storageVersionOf(live))) {
    return undefined;
  }
  const stored = storedVersionsOf(live);
  const kept = removedVersionsOf(manifest, live).filter(({ name }) => stored.includes(name));
  const spec = objectIn(manifest.object["spec"]) ?? {};
  const versions = [...listIn(spec["versions"]), ...kept.map((one) => ({ ...one, storage: false }))];
  return { ...manifest.object, spec: { ...spec, versions } };
}
