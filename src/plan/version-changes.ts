import {
  type CrdVersion,
  type CustomResourceDefinition,
  movesFields,
  storageVersionOf,
  storedVersionsOf,
} from "../api/crd.ts";
import { type JsonObject, listIn, objectIn, textIn } from "../api/json-fields.ts";
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

/** How a file has the API server convert objects: `None`, which it also has by default, or `Webhook`. */
export function strategyOf({ object }: CrdManifest): string {
  return textIn(objectIn(objectIn(object["spec"])?.["conversion"])?.["strategy"]) ?? "None";
}

/**
 * Whether a webhook converts the objects now, and nothing would with this file: the API server then exchanges their
 * apiVersion alone.
 */
export function losesConversion(manifest: CrdManifest, live: CustomResourceDefinition): boolean {
  return movesFields(live) && strategyOf(manifest) === "None";
}

/** Those of {@link outgoingOf} that storedVersions lists. */
export function outgoingVersionsOf(manifest: CrdManifest, live: CustomResourceDefinition): readonly string[] {
  return outgoingOf(manifest, live, storedVersionsOf(live));
}

/**
 * The versions that no object may be stored in once the file is applied: those that it drops, and, if nothing converts
 * any more, every one but its storage version.
 * @param versions of these
 */
export function outgoingOf(
  manifest: CrdManifest,
  live: CustomResourceDefinition,
  versions: readonly string[],
): readonly string[] {
  const target = losesConversion(manifest, live) ? targetVersionOf(manifest) : undefined;
  const isOutgoing = (name: string): boolean =>
    !hasVersion(manifest, name) || (target !== undefined && name !== target);
  return versions.filter(isOutgoing);
}

/**
 * The first of two steps for a file with which nothing may be stored in the storage version of now: the file, what it
 * drops and objects may be stored in, and what converts them. `undefined` for any other file.
 */
export function intermediateOf(manifest: CrdManifest, live: CustomResourceDefinition): JsonObject | undefined {
  if (!outgoingVersionsOf(manifest, live).includes(storageVersionOf(live))) {
    return undefined;
  }
  const stored = storedVersionsOf(live);
  const kept = removedVersionsOf(manifest, live).filter(({ name }) => stored.includes(name));
  const spec = objectIn(manifest.object["spec"]) ?? {};
  const versions = [...listIn(spec["versions"]), ...kept.map((one) => ({ ...one, storage: false }))];
  const conversion = losesConversion(manifest, live) ? { conversion: live.spec.conversion } : {};
  return { ...manifest.object, spec: { ...spec, ...conversion, versions } };
}
