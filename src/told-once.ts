/** Remembers what was said about each object, so that it is said once and not with every event. */
export class ToldOnce {
  readonly #told = new Map<string, string>();

  /** Whether this was not the last thing that was said about the object with this uid. */
  isNews(uid: string, text: string): boolean {
    const isNew = this.#told.get(uid) !== text;
    this.#told.set(uid, text);
    return isNew;
  }

  /** Forgets one object: it was deleted, or nothing is wrong with it any more. */
  forget(uid: string): void {
    this.#told.delete(uid);
  }

  /** Forgets every object but these. */
  keepOnly(uids: ReadonlySet<string>): void {
    for (const uid of this.#told.keys()) {
      if (!uids.has(uid)) {
        this.#told.delete(uid);
      }
    }
  }

  /** Of how many objects something is remembered. */
  get size(): number {
    return this.#told.size;
  }
}
