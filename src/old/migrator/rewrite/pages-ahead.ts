import type { ListedPage } from "../../kube/listed-page.ts";
import type { PageReader } from "./page-reader.ts";

/** A page, and where the list stood after it. */
export interface PageAhead {
  readonly page: ListedPage;
  /** Where the next page begins; `undefined` after the last one. */
  readonly continueToken: string | undefined;
  /** Whether the list had to begin at the first object again, so that this page is the first one. */
  readonly startsOver: boolean;
}

/** Reads the pages of a list one ahead of where they are needed, so that the objects of one do not wait for the next to come. */
export class PagesAhead {
  readonly #reader: PageReader;
  #coming: Promise<PageAhead> | undefined;

  constructor(reader: PageReader) {
    this.#reader = reader;
  }

  /**
   * The next page; the one behind it is being read from then on.
   * @throws as `PageReader.next()`.
   */
  async next(): Promise<PageAhead> {
    const ahead = await (this.#coming ?? this.#read());
    this.#coming = ahead.continueToken === undefined ? undefined : this.#read();
    // What fails shows when that page is asked for.
    this.#coming?.catch(() => undefined);
    return ahead;
  }

  /** Waits until no page is being read any more. */
  async ended(): Promise<void> {
    await this.#coming?.catch(() => undefined);
  }

  async #read(): Promise<PageAhead> {
    const { restarts } = this.#reader;
    const page = await this.#reader.next();
    const { continueToken } = this.#reader;
    return { page, continueToken, startsOver: this.#reader.restarts > restarts };
  }
}
