import type { CustomResourceDefinition } from "../api/crd.ts";
import { type InTreeMigration, inTreeResourceOf, inTreeStateOf } from "./in-tree-migrations.ts";
import { notInStoredVersions } from "./prune-doubt.ts";

/** A prune of storedVersions that nothing proves. */
export interface FailedPrune {
  /** The migrations of this CRD that failed. */
  readonly failed: readonly InTreeMigration[];
  /** The versions of the CRD that storedVersions lacks: objects may be stored in them all the same. */
  readonly versions: readonly string[];
}

/** The migrations of Kubernetes' own migrator that failed: it prunes storedVersions also where it fails. */
export function failedPruneOf(crd: CustomResourceDefinition, inTree: readonly InTreeMigration[]): FailedPrune {
  const failed = inTree.filter((one) => inTreeResourceOf(one) === crd.metadata.name && inTreeStateOf(one) === "Failed");
  return { failed, versions: notInStoredVersions(crd) };
}
