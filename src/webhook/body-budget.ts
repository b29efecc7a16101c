/** A body that is being received. */
export interface HeldBody {
  /** Bytes of it that are in memory. */
  readonly bytes: number;
  /** When its first byte was awaited, in milliseconds of the same clock as `now`. */
  readonly since: number;
  /** Ends it, and gives its memory back. */
  end(): void;
}

/**
 * One budget of memory for all bodies that are being received. Where it is used up, the body ends that has held the most memory
 * for the longest time: one that stalls, and never a review that an API server sends within milliseconds.
 */
export class BodyBudget {
  readonly #maxBytes: number;
  readonly #bodies = new Set<HeldBody>();

  /** @param maxBytes for all bodies together */
  constructor(maxBytes: number) {
    this.#maxBytes = maxBytes;
  }

  add(body: HeldBody): void {
    this.#bodies.add(body);
  }

  remove(body: HeldBody): void {
    this.#bodies.delete(body);
  }

  /** Ends bodies until the others fit. `now` is in milliseconds. */
  keep(now: number): void {
    let held = 0;
    for (const { bytes } of this.#bodies) held += bytes;
    while (held > this.#maxBytes) {
      const victim = this.#costliest(now);
      if (victim === undefined) return;
      held -= victim.bytes;
      this.#bodies.delete(victim);
      victim.end();
    }
  }

  #costliest(now: number): HeldBody | undefined {
    let found: HeldBody | undefined;
    let most = -1;
    for (const body of this.#bodies) {
      const cost = body.bytes * (now - body.since);
      if (cost > most) {
        most = cost;
        found = body;
      }
    }
    return found;
  }
}
