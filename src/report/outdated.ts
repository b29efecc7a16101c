import type { CountedEntry } from "../plan/inventory.ts";
import { versionTextOf } from "../resources/known-versions.ts";
import type { Verification } from "../verify/verification.ts";

/**
 * Why a verification shows nothing of a resource as it is now.
 *
 * - `storage version`: it is of another one
 * - `unnamed CRD`: it does not tell its uid and generation, as none of an older release does
 * - `CRD`: it is of one that was deleted since
 * - `spec`: it is of another generation of the CRD, of which the storage version may have been another one in between
 */
export type Outdated = "storage version" | "unnamed CRD" | "CRD" | "spec";

/** @returns `undefined` where it went over the objects that there are, in the storage version that the cluster shows now */
export function outdatedOf(
  { crd, storageVersion, storageVersionHash }: Verification,
  { request, ...entry }: CountedEntry,
): Outdated | undefined {
  if (entry.type === "CustomResourceDefinition") {
    const isOfVersion = storageVersion !== undefined && storageVersion === entry.storageVersion;
    return isOfVersion ? outdatedCrdOf(crd, entry.crd) : "storage version";
  }
  const shown = storageVersionHash === undefined ? undefined : versionTextOf(storageVersionHash, request?.group ?? "");
  return shown !== undefined && shown === entry.storageVersion ? undefined : "storage version";
}

/** Of two keys as `specKeyOf` has them. */
function outdatedCrdOf(then: string | undefined, now: string | undefined): Outdated | undefined {
  if (then === undefined || now === undefined) {
    return "unnamed CRD";
  }
  if (then === now) {
    return undefined;
  }
  return uidOf(then) === uidOf(now) ? "spec" : "CRD";
}

function uidOf(key: string): string {
  return key.replace(/\/[^/]*$/, "");
}
