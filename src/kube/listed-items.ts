import { DoubtfulAnswer } from "./errors.ts";

/** An answer to a list, which a proxy may have given: only {@link itemsOf} says whether it is one. */
export interface ListAnswer<T> {
  readonly items?: readonly T[] | null;
}

/**
 * The items of an answer to a list. An empty list may come with null for its items, not without them: a proxy's `{}`
 * says nothing about what is absent.
 * @param path - what was listed, for the error
 * @throws {DoubtfulAnswer} where the answer is no list.
 */
export function itemsOf<T>(body: ListAnswer<T> | null | undefined, path: string): readonly T[] {
  const items = body?.items;
  if (items === null) {
    return [];
  }
  if (!Array.isArray(items)) {
    throw new DoubtfulAnswer(`Cannot list ${path}: the answer has no items, so it is no list`);
  }
  return items;
}
