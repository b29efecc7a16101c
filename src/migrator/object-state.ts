import type { ObjectMeta, PartialObjectMetadata } from "../api/meta.ts";
import { listNamed } from "../kube/list-named.ts";
import type { ObjectIdentity } from "../kube/listed-object.ts";
import { ACCEPT_METADATA_LIST, type Resource } from "../kube/resources.ts";
import type { Transport } from "../kube/transport.ts";

/** What became of an object that was listed before. */
export type ObjectState =
  /** No object has its name any more. */
  | { readonly kind: "gone" }
  /** It was deleted, and another one was created under its name. */
  | { readonly kind: "replaced"; readonly metadata: ObjectMeta }
  | { readonly kind: "present"; readonly metadata: ObjectMeta };

/**
 * Reads what became of an object by a consistent list: the only proof that it is gone. A 404 to a request for the object
 * itself may come from an admission webhook, or name its namespace; and the right to list is enough here.
 * @throws as {@link listNamed}.
 */
export async function readObjectState(
  transport: Transport,
  resource: Resource,
  object: Pick<ObjectIdentity, "name" | "namespace" | "uid">,
  options: { readonly signal: AbortSignal },
): Promise<ObjectState> {
  const { name, namespace } = object;
  const ref = namespace === undefined ? { name } : { name, namespace };
  const found = await listNamed<PartialObjectMetadata>(transport, resource, ref, {
    accept: ACCEPT_METADATA_LIST,
    signal: options.signal,
  });
  return stateOf(found.object?.metadata, object);
}

/** What an object that a list shows, or none, says about the one that is looked for. */
export function stateOf(listed: ObjectMeta | undefined, { uid }: Pick<ObjectIdentity, "uid">): ObjectState {
  if (listed === undefined) {
    return { kind: "gone" };
  }
  return { kind: listed.uid === uid ? "present" : "replaced", metadata: listed };
}
