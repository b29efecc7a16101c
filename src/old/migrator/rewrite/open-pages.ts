import type { ListedObject } from "../../kube/listed-object.ts";
import { untilAborted } from "../../retry/deadline.ts";
import type { Following } from "./counted-objects.ts";
import type { ObjectOutcome } from "./rewrite-context.ts";

/** Pages whose objects may be under way at the same time: one object that takes long keeps others waiting only beyond them. */
export const MAX_OPEN_PAGES = 4;

/** What became of an object. */
export type ObjectDone = readonly [ListedObject, ObjectOutcome];

/** A page whose objects are under way. */
export class OpenPage {
  readonly items: readonly ListedObject[];
  /** Where the next page begins. */
  readonly continueToken: string | undefined;
  /** What it says of the objects behind it. */
  readonly following: Following | undefined;
  /** What became of its objects, in the order in which they were done. Those that are to be tried again are left out. */
  readonly done: ObjectDone[] = [];
  readonly #closed = Promise.withResolvers<void>();
  /** Objects under way, and one more until all of them were begun. */
  #underWay = 1;

  constructor(items: readonly ListedObject[], continueToken: string | undefined, following?: Following) {
    this.items = items;
    this.continueToken = continueToken;
    this.following = following;
  }

  /** Ends when every object of the page is done; never where one failed in a way that ends the pass. */
  get closed(): Promise<void> {
    return this.#closed.promise;
  }

  /** An object is about to be begun. */
  begun(): void {
    this.#underWay++;
  }

  /** An object is done, or, without one, all were begun. */
  ended(): void {
    this.#underWay--;
    if (this.#underWay === 0) {
      this.#closed.resolve();
    }
  }
}

/** Tells of pages that are done, one after the other in the order of the list, while the objects of later ones are under way. */
export class OpenPages {
  readonly #onDone: (page: OpenPage) => Promise<void>;
  readonly #signal: AbortSignal;
  readonly #open: { readonly told: Promise<void> }[] = [];
  #items = 0;
  #last: Promise<void> = Promise.resolve();
  #telling: Promise<void> | undefined;

  /**
   * @param onDone is waited for before it is called for the next page
   * @param signal ends every wait; `onDone` is not called any more then
   */
  constructor(onDone: (page: OpenPage) => Promise<void>, signal: AbortSignal) {
    this.#onDone = onDone;
    this.#signal = signal;
  }

  /** Objects of the pages that `onDone` was not called for. */
  get items(): number {
    return this.#items;
  }

  /** Takes a page in. @param onFailure told of what `onDone` throws */
  add(page: OpenPage, onFailure: (error: unknown) => void): void {
    const told = Promise.all([this.#last, page.closed]).then(() => this.#tell(page));
    this.#open.push({ told });
    this.#items += page.items.length;
    this.#last = told;
    told.catch(onFailure);
  }

  /** Waits until there is room for one more page. @throws what `onDone` throws; the signal's reason. */
  async room(): Promise<void> {
    await this.#until(MAX_OPEN_PAGES - 1);
  }

  /** Waits until every page is done. @throws as {@link room}. */
  async drained(): Promise<void> {
    await this.#until(0);
  }

  /** Waits for a call of `onDone` that is under way, whatever comes of it. */
  async idle(): Promise<void> {
    await this.#telling?.catch(() => undefined);
  }

  async #until(most: number): Promise<void> {
    for (let first = this.#open[0]; first !== undefined && this.#open.length > most; first = this.#open[0]) {
      await untilAborted(first.told, this.#signal);
    }
  }

  async #tell(page: OpenPage): Promise<void> {
    this.#signal.throwIfAborted();
    this.#telling = this.#onDone(page);
    this.#items -= page.items.length;
    await this.#telling;
    this.#open.shift();
  }
}
