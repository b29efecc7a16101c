import { createHash } from "node:crypto";
import type { ObjectMeta } from "../src/api/meta.ts";

/** One entry of `spec.versions` of a CustomResourceDefinition, apiextensions.k8s.io/v1. */
export interface CrdVersion {
  readonly name: string;
  readonly served: boolean;
  readonly storage: boolean;
  readonly deprecated?: boolean;
  readonly subresources?: { readonly status?: object; readonly [field: string]: unknown } | null;
  readonly [field: string]: unknown;
}

/** One entry of `status.conditions` of a CustomResourceDefinition. */
export interface CrdCondition {
  readonly type: string;
  readonly status: string;
  readonly reason?: string;
  readonly message?: string;
  /** RFC 3339. */
  readonly lastTransitionTime?: string;
}

/** The fields of a CustomResourceDefinition that the project decides on; the rest is passed through untouched. */
export interface CustomResourceDefinition {
  readonly apiVersion: string;
  readonly kind: string;
  readonly metadata: ObjectMeta;
  readonly spec: {
    readonly group: string;
    readonly scope: "Namespaced" | "Cluster";
    readonly names: { readonly plural: string; readonly kind: string; readonly [field: string]: unknown };
    readonly versions: readonly CrdVersion[];
    readonly conversion?: { readonly strategy: string; readonly [field: string]: unknown };
    readonly [field: string]: unknown;
  };
  readonly status?: {
    readonly storedVersions?: readonly string[];
    /** The API server keeps `null` where they were cleared through /status. */
    readonly conditions?: readonly CrdCondition[] | null;
    readonly [field: string]: unknown;
  };
}

/**
 * The names of all versions marked `storage: true`, sorted. A valid CRD has exactly one; the freeze rule compares
 * the whole set so that an invalid object can never slip past it.
 */
export function storageVersionsOf(crd: CustomResourceDefinition): readonly string[] {
  return crd.spec.versions.flatMap((version) => (version.storage ? [version.name] : [])).sort();
}

/**
 * The storage version of a CRD that the API server accepted.
 * @throws {TypeError} where not exactly one version is marked as storage, which the API server never stores.
 */
export function storageVersionOf(crd: CustomResourceDefinition): string {
  const [version, ...others] = storageVersionsOf(crd);
  if (version === undefined || others.length > 0) {
    throw new TypeError(`Cannot read the storage version of "${crd.metadata.name}": expected exactly one`);
  }
  return version;
}

/** `uid/generation`: another spec has another one, whatever it says, and so has another CRD of the same name. */
export function specKeyOf({ uid, generation }: Pick<ObjectMeta, "uid" | "generation">): string {
  return `${uid}/${generation ?? ""}`;
}

/** The names of the served versions, in the order of `spec.versions`. */
export function servedVersionsOf(crd: CustomResourceDefinition): readonly string[] {
  return crd.spec.versions.flatMap((version) => (version.served ? [version.name] : []));
}

/** `status.storedVersions`, empty where the API server has not filled it in yet. */
export function storedVersionsOf(crd: CustomResourceDefinition): readonly string[] {
  return crd.status?.storedVersions ?? [];
}

/** Whether `status.storedVersions` is exactly the storage version: nothing is left to prune. */
export function isClean(crd: CustomResourceDefinition): boolean {
  const stored = storedVersionsOf(crd);
  return stored.length === 1 && stored[0] === storageVersionOf(crd);
}

/**
 * The storageVersionHash that discovery shows for a custom resource stored as group/version/kind: base64 of the first
 * eight bytes of the SHA-256 of "group/version/kind".
 *
 * https://github.com/kubernetes/kubernetes/blob/v1.36.0/staging/src/k8s.io/apiserver/pkg/endpoints/discovery/storageversionhash.go
 */
export function storageVersionHashOf(group: string, version: string, kind: string): string {
  return createHash("sha256").update(`${group}/${version}/${kind}`).digest().subarray(0, 8).toString("base64");
}
