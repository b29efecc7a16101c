import type { PartialObjectMetadata } from "../../api/meta.ts";
import type { ApiClient } from "../kube/client.ts";
import { isReinitializing } from "../kube/failure.ts";
import { listNamed } from "../kube/list-named.ts";
import { ACCEPT_METADATA_LIST, CRDS } from "../kube/resources.ts";

/** Why nothing is known of the CRDs that an API server follows. */
export const NOT_FILLED = "its watch cache of CRDs is not filled, as where it cannot read one of them from etcd";

/**
 * A CRD as the watch cache of an API server has it, which its handlers and its discovery follow. It is read by a list by name. While the cache is not filled, an API
 * server of Kubernetes 1.31 or newer refuses that list and all watches with 429, and has etcd answer a GET, whatever its resourceVersion. An older one holds the list until the cache is
 * filled, and has etcd answer one with "0". An API server without a watch cache (`--watch-cache=false`, or a size of 0) has etcd answer each of them.
 *
 * https://github.com/kubernetes/kubernetes/blob/v1.36.0/staging/src/k8s.io/apiserver/pkg/storage/cacher/delegator.go
 * @param notOlderThan what the cache must have reached: the API server waits up to 3 s for that, and refuses then, see
 *   `isTooLargeResourceVersion()`; "0" for what it has at this moment
 * @returns `undefined` where it has none, `"not filled"` where it is not filled
 * @throws {ApiError | TransportError}; {DoubtfulAnswer} where the answer is no complete list.
 */
export async function cachedCrd(
  { transport }: ApiClient,
  name: string,
  { notOlderThan, signal }: { readonly notOlderThan: string; readonly signal: AbortSignal },
): Promise<PartialObjectMetadata | "not filled" | undefined> {
  try {
    const options = { accept: ACCEPT_METADATA_LIST, notOlderThan, signal };
    return (await listNamed<PartialObjectMetadata>(transport, CRDS, { name }, options)).object;
  } catch (error) {
    if (isReinitializing(error)) {
      return "not filled";
    }
    throw error;
  }
}
