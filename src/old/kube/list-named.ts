import type { CallOptions } from "./call-options.ts";
import type { KubeObject, ObjectRef } from "./client.ts";
import { DoubtfulAnswer } from "./errors.ts";
import { selectorOfName } from "./field-selector.ts";
import { collectionPath, type Resource } from "./resources.ts";
import type { Transport } from "./transport.ts";

/** What a list by name says about one object. */
interface NamedList<T> {
  /** `undefined` where no object has this name. */
  readonly object: T | undefined;
  /** As of when. A watch that starts here misses nothing; empty where an aggregated API server keeps none. */
  readonly resourceVersion: string;
}

/** Options of {@link listNamed}. */
export interface ListNamedOptions extends CallOptions {
  /** Such as {@link ACCEPT_METADATA_LIST}. @default whole objects */
  readonly accept?: string;
  /** A resourceVersion that the API server's watch cache must have reached. @default the list is consistent */
  readonly notOlderThan?: string;
}

interface ListAnswer<T> {
  readonly kind: string;
  readonly metadata?: { readonly resourceVersion?: string; readonly continue?: string };
  readonly items?: readonly T[] | null;
}

/**
 * Looks for one object by a consistent list (resourceVersion unset, fieldSelector `metadata.name`). Two things that a
 * GET cannot do: its answer proves that an object is absent, since a 404 to a GET may come from a proxy or from a path
 * that is not served; and a watch may start at its resourceVersion, while a watch cache that was filled after the
 * object's last change refuses the object's own.
 *
 * https://kubernetes.io/docs/reference/using-api/api-concepts/#semantics-for-get-and-list
 * @throws {ApiError | TransportError}; {DoubtfulAnswer} where the answer is no complete list.
 */
export async function listNamed<T extends KubeObject>(
  transport: Transport,
  resource: Resource,
  { name, namespace }: ObjectRef,
  { accept, notOlderThan, signal }: ListNamedOptions = {},
): Promise<NamedList<T>> {
  const path = collectionPath(resource, namespace);
  const { body } = await transport.request<unknown>({
    method: "GET",
    path,
    query: {
      fieldSelector: selectorOfName(name),
      ...(notOlderThan === undefined ? {} : { resourceVersion: notOlderThan, resourceVersionMatch: "NotOlderThan" }),
    },
    ...(accept === undefined ? {} : { accept }),
    signal,
  });
  if (!isList<T>(body)) {
    throw new DoubtfulAnswer(`Cannot look for "${name}" at ${path}: the answer is no complete list`);
  }
  // An aggregated API server may ignore the field selector.
  const object = body.items?.find(({ metadata }) => metadata.name === name);
  return { object, resourceVersion: body.metadata?.resourceVersion ?? "" };
}

/** A page that another one follows proves nothing about what is absent. An empty list may come with null for its items, not without them. */
function isList<T>(body: unknown): body is ListAnswer<T> {
  const { kind, items, metadata } = (body ?? {}) as {
    kind?: unknown;
    items?: unknown;
    metadata?: { continue?: string };
  };
  const isWhole = (metadata?.continue ?? "") === "";
  return typeof kind === "string" && kind.endsWith("List") && isWhole && (items === null || Array.isArray(items));
}
