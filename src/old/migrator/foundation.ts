import { type CustomResourceDefinition, specKeyOf } from "../../api/crd.ts";
import { StartAgain } from "../retry/start-again.ts";

/** What a run on a resource that is not frozen rests on. All of it must be the same at its end as at its beginning. */
export interface Foundation {
  /** The API servers that live, as `fingerprintOf` has them. */
  readonly apiServers: string;
  /** The storageVersionHash that all of them show; empty where they show none. */
  readonly hash: string;
  /** `uid/resourceVersion` of the resource's StorageVersion; empty where there is none, or it cannot be read. */
  readonly storageVersion: string;
  /**
   * The identity Leases that there are, each with its uid, expired or not: no clock comes into it. An API server that shuts down deletes its own, and one of Kubernetes
   * 1.35 or later also when it starts. Of older releases one that is killed finds its Lease again as it was, and its restart shows
   * in `restarts` alone.
   *
   * https://github.com/kubernetes/kubernetes/blob/v1.36.0/staging/src/k8s.io/component-helpers/apimachinery/lease/controller.go
   */
  readonly leases: string;
  /**
   * How many API servers came and went so far, by `Arrivals`, and the newest of them in words: one that joined and left between
   * two looks shows in nothing else.
   */
  readonly arrivals: number;
  readonly newestArrival: string;
  /** How many restarts of API servers the run has seen so far, by `ServerRestarts`; 0 where `encryption` shows them. */
  readonly restarts: number;
  /** `uid/generation` of the CRD of a custom resource; empty for a built-in one. */
  readonly crd: string;
  /** The APIServices of that CRD, by `ownApiOf()`, or that of a built-in resource where its encryption is looked at; else empty. */
  readonly ownApi: string;
  /** How the API servers encrypt, where that is looked at, as the `fingerprint` of `EncryptionEvidence`; else empty. */
  readonly encryption: string;
}

/** What the foundation has of a CRD; empty where there is none. */
export function specKeyIn(crd: CustomResourceDefinition["metadata"] | undefined): string {
  return crd === undefined ? "" : specKeyOf(crd);
}

/** What of a foundation did not last, in words; `undefined` where all of it did. */
export function changeBetween(before: Foundation | undefined, after: Foundation): string | undefined {
  if (before === undefined) {
    return "nothing was proven";
  }
  const changes: readonly (readonly [keyof Foundation, string])[] = [
    ["apiServers", "the set of API servers changed"],
    ["restarts", "an API server restarted"],
    ["arrivals", after.newestArrival],
    ["encryption", "an API server restarted, read another encryption configuration, or uses another key"],
    ["leases", "an API server joined, left or restarted"],
    ["hash", `the storageVersionHash changed from "${before.hash}" to "${after.hash}"`],
    ["storageVersion", "an API server reported another encoding in the StorageVersion"],
    ["crd", "the CRD changed"],
    ["ownApi", "an APIService of its group changed"],
  ];
  return changes.find(([field]) => before[field] !== after[field])?.[1];
}

/** The error of a run that has to begin again, since something that it rests on changed: `change` in words. */
export function changedDuringRun(resource: string, change: string): StartAgain {
  return new StartAgain("NotConverged", `Cannot continue with "${resource}": ${change} during the run; run again`);
}
