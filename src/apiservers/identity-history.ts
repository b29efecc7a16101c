import { compareResourceVersions, isNewer } from "../api/resource-version.ts";

/** A change of an identity Lease, as a watch tells of it. */
export interface IdentityChange {
  /** @default a bookmark: there was no other change up to here */
  readonly type: "ADDED" | "MODIFIED" | "DELETED" | "BOOKMARK";
  readonly resourceVersion: string;
}

/**
 * What a watch of the identity Leases showed without a gap. An API server that joins creates its Lease, and one that leaves deletes
 * it: a list taken later shows neither where the API server did both in between, and this does.
 */
export class IdentityHistory {
  #from: string;
  #to: string;
  #lastChange: string | undefined;

  /** @param from the resourceVersion that the watch began at */
  constructor(from: string) {
    this.#from = from;
    this.#to = from;
  }

  /** The resourceVersion up to which every change was seen. */
  get to(): string {
    return this.#to;
  }

  /** Takes what the watch says next. */
  add({ type, resourceVersion }: IdentityChange): void {
    if (type === "ADDED" || type === "DELETED") {
      this.#lastChange = resourceVersion;
    }
    if (isNewer(resourceVersion, this.#to)) {
      this.#to = resourceVersion;
    }
  }

  /** Changes were missed up to this resourceVersion. */
  missed(to: string): void {
    this.#from = to;
    this.#to = to;
  }

  /** Whether an API server was seen to join or leave after this resourceVersion. */
  hasChangedSince(from: string): boolean {
    return this.#lastChange !== undefined && !isUpTo(this.#lastChange, from);
  }

  /** Whether every change after this resourceVersion was seen, as far as the watch is. */
  reachesBackTo(from: string): boolean {
    return isUpTo(this.#from, from);
  }

  /** Whether it is known that no API server joined or left after `from` and up to `to`. */
  isQuiet(from: string, to: string): boolean {
    const isSeen = this.reachesBackTo(from) && isUpTo(from, to) && isUpTo(to, this.#to);
    return isSeen && !this.hasChangedSince(from);
  }
}

/** Whether `a` is known to be no newer than `b`. */
function isUpTo(a: string, b: string): boolean {
  const order = compareResourceVersions(a, b);
  return order !== undefined && order <= 0;
}
