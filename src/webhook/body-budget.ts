/** A body that is being received. */
export interface HeldBody {
  /** Of the client that sends it. */
  readonly address: string;
  /** Bytes of it that are in memory. */
  readonly bytes: number;
  /** When its first byte was awaited, in milliseconds of the same clock as `now`. */
  readonly since: number;
  /** Ends it, and gives its memory back. */
  end(): void;
}

/**
 * One budget of memory for all bodies that are being received. Where it is used up, a body ends of the address whose bodies hold the
 * most: the one that has held the most memory for the longest time. So no client keeps another one from its answer.
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
    const address = this.#largestAddress();
    let found: HeldBody | undefined;
    let most = -1;
    for (const body of this.#bodies) {
      const cost = body.bytes * (now - body.since);
      if (body.address === address && cost > most) {
        most = cost;
        found = body;
      }
    }
    return found;
  }

  #largestAddress(): string | undefined {
    const held = new Map<string, number>();
    for (const { address, bytes } of this.#bodies) held.set(address, (held.get(address) ?? 0) + bytes);
    const most = Math.max(...held.values());
    return [...held].find(([, bytes]) => bytes === most)?.[0];
  }
}
