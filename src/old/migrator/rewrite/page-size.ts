/** The default of `--page-size`: objects in a page, at most. */
export const DEFAULT_PAGE_SIZE = 500;

/** The largest `--page-size`. */
export const MAX_PAGE_SIZE = 10_000;

/** Bytes that a page is to have: enough that requests cost little, and few enough for every API server on the way. */
const TARGET_BYTES = 4 * 2 ** 20;
/** Objects of the first page: nothing is known yet of their size but that of the one that the probe lists. */
const FIRST_LIMIT = 50;
/** The most that a page may grow from one to the next, as a factor. */
const GROWTH = 4;
/** The same after a page took too long. */
const CAREFUL_GROWTH = 1.25;

/** What a page turned out to be. */
export interface PageReceived {
  readonly items: number;
  readonly bytes: number;
}

/**
 * How many objects the next page asks for: as many as come to some 4 MiB by the size of the last page's, and half as many
 * each time that a page takes too long, down to a single one. From there it grows by a quarter with each page.
 */
export class PageSize {
  readonly #max: number;
  /** The most to ask for since a page took too long. */
  #ceiling: number;
  #limit: number;

  /** @param max as `--page-size` has it */
  constructor(max: number) {
    this.#max = max;
    this.#ceiling = max;
    this.#limit = Math.min(max, FIRST_LIMIT);
  }

  /** Objects to ask for. */
  get limit(): number {
    return this.#limit;
  }

  /** A page came. */
  received({ items, bytes }: PageReceived): void {
    if (items === 0) {
      return;
    }
    const fitting = Math.max(1, Math.floor((TARGET_BYTES * items) / Math.max(1, bytes)));
    this.#ceiling = Math.min(this.#max, Math.ceil(this.#ceiling * CAREFUL_GROWTH));
    this.#limit = Math.min(fitting, this.#ceiling, this.#limit * GROWTH);
  }

  /** The API server, or the connection, gave up on a page. */
  tookTooLong(): void {
    this.#limit = Math.max(1, Math.floor(this.#limit / 2));
    this.#ceiling = this.#limit;
  }
}
