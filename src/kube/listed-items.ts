import { DoubtfulAnswer } from "./errors.ts";

/**
 * The items of an answer to a list. An empty list may come with null for its items, not without them: a proxy's `{}`
 * says nothing about what is absent.
 * @param path - what was listed, for the error
 * @throws {DoubtfulAnswer} where the answer is no list.
 */
export function itemsOf<T>(body: unknown, path: string): readonly T[] {
  const items: unknown = typeof body === "object" && body !== null && "items" in body ? body.items : undefined;
  if (items === null) {
    return [];
  }
  if (!Array.isArray(items)) {
    throw new DoubtfulAnswer(`Cannot list ${path}: the answer has no items, so it is no list`);
  }
  return items as readonly T[];
}
