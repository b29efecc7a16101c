import type { DryRun } from "../../src/plan/check-types.ts";
import type { CrdManifest } from "../../src/plan/crd-manifests.ts";
import { crdWith } from "../api/crd-with.ts";

/** The API server takes it. */
export const APPLIED: DryRun = { outcome: "accepted" };

/** The API server refuses it for these causes. */
export function refusedFor(...causes: readonly string[]): DryRun {
  return { outcome: "refused", said: causes.join(", "), causes };
}

/** A file with these versions, in the notation of {@link crdWith}. */
export function fileWith(versions: readonly string[]): CrdManifest {
  const { apiVersion, kind, metadata, spec } = crdWith({ versions });
  return {
    name: metadata.name,
    source: "crd.yaml",
    apiVersion,
    object: { apiVersion, kind, metadata: { name: metadata.name }, spec },
    versions: spec.versions.map(({ name, served, storage }) => ({ name, served, storage })),
  };
}
