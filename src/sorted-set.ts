/** Items of one run: a new one moves at most so many references. */
const MAX_RUN = 512;

/**
 * Items in an order. To add or take one away costs comparisons in proportion to the logarithm of their number, and the
 * first ones are read without any. The order has to be total: two items that compare as equal are the same one.
 */
export class SortedSet<T> {
  readonly #compare: (a: T, b: T) => number;
  /** None of them empty, each in order, and one after the other. */
  readonly #runs: T[][] = [];
  #size = 0;

  constructor(compare: (a: T, b: T) => number) {
    this.#compare = compare;
  }

  get size(): number {
    return this.#size;
  }

  /** The first of them. */
  get first(): T | undefined {
    return this.#runs[0]?.[0];
  }

  /** Adds an item, in the place of one that compares as equal. */
  add(item: T): void {
    const runAt = Math.max(0, this.#runAt(item));
    const run = this.#runs[runAt];
    if (run === undefined) {
      this.#runs.push([item]);
      this.#size = 1;
      return;
    }
    const { at, isThere } = this.#find(run, item);
    run.splice(at, isThere ? 1 : 0, item);
    this.#size += isThere ? 0 : 1;
    if (run.length > MAX_RUN) {
      this.#runs.splice(runAt + 1, 0, run.splice(MAX_RUN / 2));
    }
  }

  /** Takes the item away that compares as equal; `false` where there is none. */
  delete(item: T): boolean {
    const runAt = this.#runAt(item);
    const run = this.#runs[runAt];
    const { at, isThere } = run === undefined ? { at: 0, isThere: false } : this.#find(run, item);
    if (run === undefined || !isThere) {
      return false;
    }
    run.splice(at, 1);
    this.#size--;
    if (run.length === 0) {
      this.#runs.splice(runAt, 1);
    }
    return true;
  }

  /** In their order. */
  *[Symbol.iterator](): Generator<T, void> {
    for (const run of this.#runs) {
      yield* run;
    }
  }

  /** The last run that begins with the item or before it; -1 where none does. */
  #runAt(item: T): number {
    let [low, high] = [0, this.#runs.length];
    while (low < high) {
      const middle = (low + high) >>> 1;
      const first = this.#runs[middle]?.[0];
      if (first !== undefined && this.#compare(first, item) <= 0) {
        low = middle + 1;
      } else {
        high = middle;
      }
    }
    return low - 1;
  }

  /** Where in its run the item is, or belongs. */
  #find(run: readonly T[], item: T): { readonly at: number; readonly isThere: boolean } {
    let [low, high] = [0, run.length];
    while (low < high) {
      const middle = (low + high) >>> 1;
      const order = this.#compare(run[middle] as T, item);
      if (order === 0) {
        return { at: middle, isThere: true };
      }
      [low, high] = order < 0 ? [middle + 1, high] : [low, middle];
    }
    return { at: low, isThere: false };
  }
}
