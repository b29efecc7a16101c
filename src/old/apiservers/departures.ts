import type { LiveLease } from "./control-plane-objects.ts";

/** A Lease that was there, by which one is told from another of the same name. */
type NamedLease = Pick<LiveLease, "name" | "uid">;

/** An API server that a process saw leave. */
export interface Departure {
  /** The name of its identity Lease. */
  readonly name: string;
  /** When it was first seen to be gone, on the monotonic clock, in milliseconds: it left before that. */
  readonly at: number;
}

/**
 * Which API servers a process saw leave, by identity Leases that were there and are no more. From Kubernetes 1.35 on an API server
 * deletes its Lease when it begins to end, and with `--shutdown-delay-duration` takes requests for that long after, on connections
 * that a client keeps, too.
 *
 * https://github.com/kubernetes/kubernetes/blob/v1.36.0/pkg/controlplane/apiserver/server.go
 */
export class Departures {
  #standing: ReadonlyMap<string, NamedLease> = new Map();
  /** Those whose API servers were taken for gone at the last look. */
  #gone = new Set<string>();
  #last: Departure | undefined;
  #firstLookAt: number | undefined;
  #missedAt: number | undefined;

  /**
   * When the process looked first, or first after {@link missed}, on the monotonic clock, in milliseconds: it cannot know of those that left before.
   */
  get firstLookAt(): number | undefined {
    return this.#firstLookAt;
  }

  /** The last one of them. */
  get last(): Departure | undefined {
    return this.#last;
  }

  /**
   * Takes one look at the Leases.
   * @param leases all that there are
   * @param standing those of them whose API servers may live: one that was taken for gone before does not leave
   * @param at when the answer came, on the monotonic clock, in milliseconds
   */
  looked(leases: readonly NamedLease[], standing: readonly NamedLease[], at: number): void {
    this.#firstLookAt ??= at;
    const keys = new Set(leases.map(keyOf));
    for (const [key, lease] of this.#standing) {
      if (!keys.has(key)) {
        this.left(lease, at);
      }
    }
    this.#standing = new Map(standing.map((lease) => [keyOf(lease), lease]));
    this.#gone = new Set([...keys].filter((key) => !this.#standing.has(key)));
  }

  /** Notes one that was seen to leave at that time. Kubernetes deletes the Lease of one that was killed when it has expired. */
  left(lease: NamedLease, at: number): void {
    const isNews = this.#last === undefined || at >= this.#last.at;
    if (isNews && !this.#gone.has(keyOf(lease))) {
      this.#last = { name: lease.name, at };
    }
  }

  /** Notes that one renewed its Lease: it is not gone, whatever the last look said. */
  renewed(lease: NamedLease): void {
    this.#gone.delete(keyOf(lease));
  }

  /** Notes that another process looked until that time: one that it saw leave, this process may never see. */
  missed(at: number): void {
    this.#missedAt = at;
    this.#firstLookAt = undefined;
  }

  /** Whether one that the other process saw may have left so many milliseconds before `now`, or later. */
  mayHaveMissedWithin(ms: number, now: number): boolean {
    return this.#missedAt !== undefined && now - (this.#firstLookAt ?? this.#missedAt) <= ms;
  }

  /** The last one, if it was within so many milliseconds before `now`. */
  lastWithin(ms: number, now: number): Departure | undefined {
    return this.#last !== undefined && now - this.#last.at <= ms ? this.#last : undefined;
  }
}

function keyOf({ name, uid }: NamedLease): string {
  return `${name}@${uid}`;
}
