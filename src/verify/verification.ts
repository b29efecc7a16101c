import type { StorageEncoding } from "../apiservers/storage-encoding.ts";
import type { NotCurrent } from "../migrator/events.ts";
import type { ObjectFailure } from "../migrator/rewrite/counts.ts";

/** How far a verification is, or what it came to, in objects. */
export interface VerificationCounts {
  /** A write that changes nothing left each of them as it was, through every API server of {@link ShownOn}. */
  readonly current: number;
  /** Were not current, and have been written by that; see {@link NotCurrent}. */
  readonly changed: number;
  /** Deleted since they were listed. */
  readonly gone: number;
  /** Nothing is known of them: the write was refused. */
  readonly notShown: number;
}

/** Through which API servers a verification wrote. */
export interface ShownOn {
  /** The addresses that it wrote through, each of which leads to one API server of its own. */
  readonly servers: readonly string[];
  /** How many API servers there are; missing where that is not known. */
  readonly of?: number;
  /** Whether there is only one address for several API servers: each write went through any one of them. */
  readonly isShared?: true;
}

/** What a verification says of one resource, and what that rests on. */
export interface Verification {
  /** `plural.group`, or the plural alone in the core group. */
  readonly resource: string;
  /**
   * - `current`: every object was shown to be stored as the API servers store it now
   * - `changed`: some were not; they are now
   * - `not-shown`: nothing is known of some, and all others were current
   */
  readonly outcome: "current" | "changed" | "not-shown";
  readonly counts: VerificationCounts;
  readonly apiServers: ShownOn;
  /** The resourceVersion of the list that it went over. */
  readonly watermark: string;
  /** The storage version of the CRD; missing for a built-in resource. */
  readonly storageVersion?: string;
  /** `uid/generation` of the CRD, from the beginning to the end; missing for a built-in resource, and in files of releases that did not tell. */
  readonly crd?: string;
  /** What all API servers show for a built-in resource; empty where they show none. */
  readonly storageVersionHash?: string;
  /** How the API servers store the objects of a custom resource; missing where they do not show it. */
  readonly encoding?: StorageEncoding;
  /** The digest of the EncryptionConfiguration, or `NONE_SHOWN`; missing where that was not looked at. */
  readonly encryption?: string;
  /** The first hundred of those that were not current. */
  readonly changed: readonly NotCurrent[];
  /** The first hundred of those of which nothing is known. */
  readonly notShown: readonly ObjectFailure[];
}

/** What counts come to. */
export function verdictOf({ changed, notShown }: VerificationCounts): Verification["outcome"] {
  if (changed > 0) {
    return "changed";
  }
  return notShown > 0 ? "not-shown" : "current";
}
