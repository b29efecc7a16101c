import type { Status } from "../../api/meta.ts";
import { DoubtfulAnswer } from "./errors.ts";
import { type ListedObject, listedObjectOf, ObjectUnreadable } from "./listed-object.ts";

/** A write, and what its answer has to be. */
export interface ObjectWrite {
  readonly verb: "create" | "patch" | "replace";
  readonly path: string;
  /** What the object is called; missing where the API server makes its name. */
  readonly name: string | undefined;
  /** Whether nothing is stored: then the object may have no resourceVersion. @default false */
  readonly dryRun?: boolean | undefined;
}

/**
 * The object that an answer to a GET of one object is. An answer without the object's name, such as the `{}` of a proxy,
 * says nothing about it: not even that it has no freeze.
 * @param asked - what was asked for
 * @throws {DoubtfulAnswer} where the answer is not the object.
 */
export function objectIn<T>(body: T, asked: { readonly name: string; readonly path: string }): T {
  if (metadataOf(body).name !== asked.name) throw new DoubtfulAnswer(notThis("get", asked.path));
  return body;
}

/**
 * The same, of an answer of which only the short fields are kept.
 * @throws {DoubtfulAnswer} where the answer is not the object.
 */
export function listedIn(body: Buffer, asked: { readonly name: string; readonly path: string }): ListedObject {
  try {
    const listed = listedObjectOf(body);
    if (listed.name === asked.name) return listed;
  } catch (error) {
    if (!(error instanceof ObjectUnreadable)) throw error;
  }
  throw new DoubtfulAnswer(notThis("get", asked.path));
}

/**
 * The object that an answer to a write is. The status 200 of a proxy says as little as its `{}`: whether anything was written is
 * not known then.
 * @throws {DoubtfulAnswer} where the answer is not the object as it is stored.
 */
export function writtenIn<T>(body: T, { dryRun = false, name: asked, path, verb }: ObjectWrite): T {
  const { name, resourceVersion } = metadataOf(body);
  const isNamed = asked === undefined ? isText(name) : name === asked;
  if (!isNamed || !(dryRun || isText(resourceVersion))) throw new DoubtfulAnswer(notThis(verb, path));
  return body;
}

/**
 * An answer to a DELETE is a Status of success that names the object, or the object itself, as finalizers hold it.
 * @throws {DoubtfulAnswer} where it is neither: whether anything was deleted is not known then.
 */
export function assertDeleted(body: unknown, asked: { readonly name: string; readonly path: string }): void {
  const { kind, status, details } = (body ?? {}) as Partial<Status>;
  const isSuccess = kind === "Status" && status === "Success" && details?.name === asked.name;
  if (!isSuccess && metadataOf(body).name !== asked.name) {
    throw new DoubtfulAnswer(`Cannot delete ${asked.path}: the answer does not say that it is deleted`);
  }
}

function isText(value: unknown): boolean {
  return typeof value === "string" && value !== "";
}

function metadataOf(body: unknown): { readonly name?: unknown; readonly resourceVersion?: unknown } {
  return (body as { readonly metadata?: object | null } | null | undefined)?.metadata ?? {};
}

function notThis(verb: string, path: string): string {
  return `Cannot ${verb} ${path}: the answer is not this object`;
}
