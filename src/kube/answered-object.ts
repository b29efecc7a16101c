import { DoubtfulAnswer } from "./errors.ts";

/**
 * The object that an answer to a GET of one object is. An answer without the object's name, such as the `{}` of a proxy,
 * says nothing about it: not even that it has no freeze.
 * @param asked - what was asked for
 * @throws {DoubtfulAnswer} where the answer is not the object.
 */
export function objectIn<T>(body: T, asked: { readonly name: string; readonly path: string }): T {
  const { metadata } = (body ?? {}) as { readonly metadata?: { readonly name?: unknown } | null };
  if (metadata?.name !== asked.name) {
    throw new DoubtfulAnswer(`Cannot get ${asked.path}: the answer is not this object`);
  }
  return body;
}
