import { KsvmError } from "../../../errors.ts";
import { selectorOfName } from "../../kube/field-selector.ts";
import type { ApiRequest } from "../../kube/api-request.ts";
import type { ListedObject, ObjectIdentity } from "../../kube/listed-object.ts";
import { type ListedPage, readListedPage } from "../../kube/listed-page.ts";
import { ACCEPT_METADATA_LIST, collectionPath, type Resource } from "../../kube/resources.ts";
import type { Transport } from "../../kube/transport.ts";
import { throwIfUnserved } from "./unserved-version.ts";

/** What became of an object that was listed before. */
export type ObjectState =
  /** No object has its name any more. */
  | { readonly kind: "gone" }
  /** It was deleted, and another one was created under its name. */
  | { readonly kind: "replaced"; readonly object: ListedObject }
  | { readonly kind: "present"; readonly object: ListedObject };

/**
 * Reads what became of an object by a consistent list: the only proof that it is gone. A 404 to a request for the object
 * itself may come from an admission webhook, or name its namespace; and the right to list is enough here.
 * @param options with `subresource`, the digest of what is read covers the status
 * @throws {ApiError | TransportError}; {KsvmError} ApiRequestFailed where the list is not complete, VersionNotServed where the resource is
 *   not served in this version, as the API server's lists confirm; {DoubtfulAnswer} for a 404 that they contradict.
 */
export async function readObjectState(
  transport: Transport,
  resource: Resource,
  sought: Pick<ObjectIdentity, "name" | "namespace" | "uid">,
  options: { readonly subresource?: "status" | undefined; readonly signal: AbortSignal },
): Promise<ObjectState> {
  const { name, namespace } = sought;
  const { signal, subresource } = options;
  const status = subresource !== undefined;
  const path = collectionPath(resource, namespace);
  const query = { fieldSelector: selectorOfName(name) };
  const accept = status ? {} : { accept: ACCEPT_METADATA_LIST };
  const request = { method: "GET", path, query, ...accept, signal } as const;
  const page = await listOnce(transport, resource, request, { status });
  if (page.continueToken !== undefined) {
    // What is absent from a page that another one follows may be on that one.
    throw new KsvmError("ApiRequestFailed", `Cannot look for "${name}" at ${path}: the list is not complete`);
  }
  // A list over all namespaces shows those of each. An aggregated API server may ignore the field selector, and leave out what the path says.
  const found = page.items.find((item) => item.name === name && (item.namespace ?? namespace) === namespace);
  return stateOf(found, sought);
}

async function listOnce(
  transport: Transport,
  resource: Resource,
  request: ApiRequest,
  { status }: { readonly status: boolean },
): Promise<ListedPage> {
  try {
    return (await transport.read(request, (body) => readListedPage(body, { status }))).body;
  } catch (error) {
    await throwIfUnserved(transport, resource, error, { signal: request.signal });
    throw error;
  }
}

/**
 * The same object, with a digest that covers the status: what a write through the status subresource changes can be told by that.
 * Where it is not at this resourceVersion any more, it comes back as it was: a write at that one is refused.
 * @throws as {@link readObjectState}
 */
export async function withStatusDigest(
  {
    transport,
    resource,
    signal,
  }: { readonly transport: Transport; readonly resource: Resource; readonly signal: AbortSignal },
  object: ListedObject,
): Promise<ListedObject> {
  const state = await readObjectState(transport, resource, object, { subresource: "status", signal });
  const isSame = state.kind === "present" && state.object.resourceVersion === object.resourceVersion;
  return isSame ? state.object : object;
}

/** What an object that a list shows, or none, says about the one that is looked for. */
export function stateOf(listed: ListedObject | undefined, { uid }: Pick<ObjectIdentity, "uid">): ObjectState {
  if (listed === undefined) {
    return { kind: "gone" };
  }
  return { kind: listed.uid === uid ? "present" : "replaced", object: listed };
}
