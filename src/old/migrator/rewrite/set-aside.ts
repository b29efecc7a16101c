import type { ObjectIdentity } from "../../kube/listed-object.ts";

/** How many objects are kept for a second try. Beyond that the cause is not a hiccup, and memory stays bounded. */
const MAX_SET_ASIDE = 1_000;

/** How long an object is left alone before its second try, in milliseconds. */
const SECOND_TRY_AFTER_MS = 1_000;

/**
 * Objects that could not be rewritten, and are tried once more when all others are done: an admission webhook may have
 * had a hiccup. Waiting there and then would keep others from being rewritten.
 */
export class SetAside<T extends ObjectIdentity> {
  readonly #limit: number;
  readonly #objects = new Map<string, T>();
  #newestAt = Number.NEGATIVE_INFINITY;

  constructor(limit = MAX_SET_ASIDE) {
    this.#limit = limit;
  }

  get size(): number {
    return this.#objects.size;
  }

  /** Keeps an object at a time of the monotonic clock; `false` where there is no room. */
  add(object: T, now: number): boolean {
    if (this.#objects.size >= this.#limit && !this.#objects.has(object.uid)) {
      return false;
    }
    this.#objects.set(object.uid, object);
    this.#newestAt = now;
    return true;
  }

  /** Forgets an object that is being tried again already, as after a list that began at its start again. */
  remove({ uid }: Pick<ObjectIdentity, "uid">): void {
    this.#objects.delete(uid);
  }

  /** Milliseconds until the second try may begin. */
  dueInMs(now: number): number {
    return this.#objects.size === 0 ? 0 : Math.max(0, this.#newestAt + SECOND_TRY_AFTER_MS - now);
  }

  /** Hands all objects over, in the order in which they came. */
  takeAll(): readonly T[] {
    const objects = [...this.#objects.values()];
    this.#objects.clear();
    return objects;
  }
}
