/** Which seeds are played, as a file can keep it. */
export interface SeedListState {
  readonly from: number;
  readonly count: number;
  /** All below have been handed out. */
  readonly next: number;
  /** Handed out, and not played yet. */
  readonly open: readonly number[];
}

/** Hands out seeds in their order, and knows which of them are played. */
export class SeedList {
  readonly from: number;
  readonly count: number;
  #next: number;
  /** Those of an earlier process that it did not get to. */
  readonly #again: number[];
  readonly #open = new Set<number>();

  constructor({ from, count, next = from, open = [] }: Partial<SeedListState> & { from: number; count: number }) {
    this.from = from;
    this.count = count;
    this.#next = next;
    this.#again = [...open];
    for (const seed of open) this.#open.add(seed);
  }

  /** The next one to play; `undefined` when all have been handed out. */
  take(): number | undefined {
    const again = this.#again.shift();
    if (again !== undefined) return again;
    if (this.#next >= this.from + this.count) return undefined;
    this.#open.add(this.#next);
    return this.#next++;
  }

  finish(seed: number): void {
    this.#open.delete(seed);
  }

  /** How many are played. */
  get done(): number {
    return this.#next - this.from - this.#open.size;
  }

  state(): SeedListState {
    const { from, count } = this;
    return { from, count, next: this.#next, open: [...this.#open].toSorted((a, b) => a - b) };
  }
}
