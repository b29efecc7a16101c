import type { CustomResourceDefinition } from "../api/crd.ts";
import type { FieldVersions } from "./field-versions.ts";
import type { Estimate } from "./estimate.ts";

/**
 * What becomes of a CRD file that is applied.
 *
 * - `applicable`: the API server takes it, and nothing is known to be lost
 * - `needs-migration`: the API server refuses it until objects are migrated and storedVersions is pruned
 * - `two-steps`: the same, and the file also drops the version that is the storage version now, so that a migration
 *   alone
 *   does not help: another file has to be applied before
 * - `refused`: the API server, or what it asks, refuses it for another reason
 * - `data-loss`: objects cannot be read afterwards
 * - `unknown`: it cannot be told
 */
export type CheckVerdict = "applicable" | "needs-migration" | "two-steps" | "refused" | "data-loss" | "unknown";

/** One CRD of a file. Field names are those of `ksvm check -o json`. */
export interface CheckEntry {
  readonly name: string;
  /** The file. */
  readonly source: string;
  readonly verdict: CheckVerdict;
  /** Why, as one sentence. */
  readonly reason: string;
  /** What to do, in this order; empty where the file can be applied. */
  readonly steps: readonly string[];
  /** What else there is to know, and what cannot be known. */
  readonly notes: readonly string[];
  /** What the API server says to a dry run, where it refuses. */
  readonly apiServer?: string;
  /** Of the CRD in the cluster; missing where there is none. */
  readonly storageVersion?: string;
  readonly storedVersions?: readonly string[];
  /** The versions of the cluster that the file does not have. */
  readonly removedVersions: readonly string[];
  /** Missing where there is no CRD yet, or its objects cannot be counted. */
  readonly objects?: number;
  /** Objects whose managedFields name a version that the file does not have; missing where there is none. */
  readonly managedFields?: FieldVersions;
  /** What migrating its objects takes; missing where there is nothing to migrate, or the objects cannot be counted. */
  readonly estimate?: Estimate;
}

/** What the API server says to a write that it does not carry out. */
export type DryRun =
  | { readonly outcome: "accepted" }
  | Refusal
  /** The user may not ask, so nothing is known. */
  | { readonly outcome: "forbidden"; readonly said: string };

/** Of a dry run. */
export interface Refusal {
  readonly outcome: "refused";
  readonly said: string;
  /** What it refuses one by one, as `field: message`; empty where it does not say. */
  readonly causes: readonly string[];
  /**
   * What it says to the same in place of all that `spec` of the CRD has, and not as an apply; missing where that was
   * not asked.
   */
  readonly replaced?: DryRun;
}

/** What listing the objects of a CRD shows. */
export interface ListedObjects {
  /** Missing where they cannot be listed. */
  readonly count?: number;
  /** Why they cannot be listed, in the words of the API server. */
  readonly problem?: string;
  /** The version of objects that the API server cannot decode, because the CRD no longer has it. */
  readonly unreadableIn?: string;
}

/** What a check rests on. */
export interface CheckFacts {
  /** Missing where the cluster has no such CRD. */
  readonly live?: CustomResourceDefinition | undefined;
  /** Whether the file is to take the place of all that `spec` has, and is not left to its own client. @default false */
  readonly isReplaced?: boolean;
  /** Of the file. */
  readonly dryRun: DryRun;
  /** Of {@link intermediateOf}; missing where there is none. */
  readonly intermediateDryRun?: DryRun | undefined;
  /** Missing where the cluster has no such CRD, or it serves no version. */
  readonly objects?: ListedObjects | undefined;
  /** Whose managedFields name a version that the file does not have; missing where the file drops none. */
  readonly managedFields?: FieldVersions | undefined;
  /**
   * Migrations of Kubernetes' own migrator of this resource that failed: it prunes storedVersions all the same.
   * `undefined` where this user may not list them.
   */
  readonly failedInTree: readonly string[] | undefined;
}
