import { DoubtfulAnswer } from "./errors.ts";

/** An answer to a list, which a proxy may have given: only {@link itemsOf} says whether it is one. */
export interface ListAnswer<T> {
  readonly metadata?: { readonly continue?: string; readonly resourceVersion?: string } | null;
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

/**
 * Like {@link itemsOf}, of a list that was asked for without a limit: all of it is on one page. A part of it, as a proxy may
 * give, says nothing about what is absent.
 * @throws {DoubtfulAnswer} where the answer is no list, or another page follows.
 */
export function allItemsOf<T>(body: ListAnswer<T> | null | undefined, path: string): readonly T[] {
  const items = itemsOf(body, path);
  if ((body?.metadata?.continue ?? "") !== "") {
    throw new DoubtfulAnswer(
      `Cannot list ${path}: the answer is one page of several, and the whole list was asked for`,
    );
  }
  return items;
}
