import { holderOf, type Lease } from "../../api/lease.ts";

/** An identity Lease as a list or a watch shows it. */
export interface ShownLease {
  readonly name: string;
  readonly uid: string;
  /** Who holds it: an API server with a random part for its process. */
  readonly holder: string;
  readonly renewTime?: string | undefined;
}

/** What of a Lease is logged. */
export function shownOf({ metadata, spec }: Lease): ShownLease {
  return {
    name: metadata.name,
    uid: metadata.uid,
    holder: holderOf(spec === undefined ? undefined : { spec }),
    renewTime: spec?.renewTime,
  };
}

/** A Lease of a list, and whether its time is over: such an API server is taken for gone, and nothing is asked of it. */
export interface ListedLease extends ShownLease {
  readonly isOver: boolean;
}

/** One event of a watch. */
export interface LeaseEvent {
  readonly type: "ADDED" | "MODIFIED" | "DELETED";
  readonly lease: ShownLease;
}

/**
 * Counts what happened to the identity Leases since they were first listed: each API server that joined, left, or lives although
 * its Lease had expired. Two looks between which it counts nothing saw every API server that there was. The same event may come
 * more than once, as from two watches.
 */
export class ArrivalLog {
  /** Those of the list, and of API servers that joined since, as they were then. */
  #standing = new Map<string, ListedLease>();
  readonly #facts = new Set<string>();
  #gaps = 0;
  #newest = "";

  /** How many changes there were. It never gets smaller. */
  get count(): number {
    return this.#facts.size + this.#gaps;
  }

  /** The newest of them, in words; empty before the first one. */
  get newest(): string {
    return this.#newest;
  }

  /** Takes a list that no watch leads up to: what happened before it is not known, and that counts as a change. */
  listed(leases: readonly ListedLease[]): void {
    this.#standing = new Map(leases.map((lease) => [keyOf(lease), lease]));
    this.#gaps++;
    this.#newest = "the identity Leases were not watched for a while, in which API servers may have joined and left";
  }

  /** Takes an event that follows on that list. Renewals count for nothing. */
  told({ lease, type }: LeaseEvent): void {
    const key = keyOf(lease);
    const before = this.#standing.get(key);
    if (type === "DELETED") {
      this.#note(`left ${key}`, `the API server of identity Lease ${lease.name} left`);
    } else if (before === undefined) {
      this.#note(`joined ${key}`, `the API server of identity Lease ${lease.name} joined`);
      // Of two watches, the slower one tells this again, from the first holder on.
      this.#standing.set(key, { ...lease, isOver: false });
    } else if (before.holder !== lease.holder) {
      this.#note(`holder ${key} ${lease.holder}`, `another API server took identity Lease ${lease.name} over`);
    } else if (before.isOver && before.renewTime !== lease.renewTime) {
      this.#note(`renewed ${key}`, `the API server of identity Lease ${lease.name}, which had expired, lives`);
    }
  }

  #note(fact: string, text: string): void {
    if (!this.#facts.has(fact)) {
      this.#facts.add(fact);
      this.#newest = text;
    }
  }
}

/** A Lease that was deleted and created again is that of an API server that restarted. */
function keyOf({ name, uid }: ShownLease): string {
  return `${name}@${uid}`;
}
