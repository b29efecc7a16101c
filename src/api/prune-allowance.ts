import { type CustomResourceDefinition, storedVersionsOf } from "./crd.ts";
import { ALLOW_PRUNE_ANNOTATION } from "./names.ts";

/** What an administrator allows once: these versions may leave `status.storedVersions` of a CRD of this generation. */
export interface PruneAllowance {
  readonly versions: readonly string[];
  readonly generation: string;
}

/** Between the versions and the generation. No name of a version has it. */
export const GENERATION_MARK = "@";

/** Between two versions. */
export const VERSION_MARK = ",";

/** Reads a value of {@link ALLOW_PRUNE_ANNOTATION}, such as `v1alpha1,v1beta1@7`; `undefined` where it is no such value. */
export function parsePruneAllowance(value: string): PruneAllowance | undefined {
  const [versions = "", generation = "", ...more] = value.split(GENERATION_MARK);
  const isValid = versions !== "" && /^\d+$/.test(generation) && more.length === 0;
  return isValid ? { versions: versions.split(VERSION_MARK), generation } : undefined;
}

/**
 * Whether an allowance has done what it was written for, or can do nothing more: the versions have left, or the CRD has
 * another generation.
 */
export function isPruneAllowanceSpent(crd: CustomResourceDefinition): boolean {
  const value = crd.metadata.annotations?.[ALLOW_PRUNE_ANNOTATION];
  const allowance = value === undefined ? undefined : parsePruneAllowance(value);
  if (allowance === undefined) {
    return value !== undefined;
  }
  const stored = storedVersionsOf(crd);
  return (
    allowance.generation !== String(crd.metadata.generation) ||
    !allowance.versions.some((name) => stored.includes(name))
  );
}
