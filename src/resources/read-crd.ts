import type { CustomResourceDefinition } from "../api/crd.ts";
import type { CallOptions } from "../old/kube/call-options.ts";
import type { ApiClient } from "../old/kube/client.ts";
import { CRDS } from "../old/kube/resources.ts";
import type { CallContext } from "../old/retry/call-context.ts";

/**
 * Reads a CRD as it is now, however long the API server takes to answer.
 * @throws {ApiError} NotFound where it does not exist; {KsvmError} RetryBudgetExceeded.
 */
export function readCrd({ client, retrier, signal }: CallContext, name: string): Promise<CustomResourceDefinition> {
  return retrier.run(() => client.get<CustomResourceDefinition>(CRDS, { name }, { signal }), signal);
}

/**
 * Finds the CRD of a resource by its name; `undefined` where there is none. A name without a group is never a CRD's.
 * @throws {ApiError | TransportError}
 */
export async function findCrd(
  client: ApiClient,
  name: string,
  options: CallOptions = {},
): Promise<CustomResourceDefinition | undefined> {
  return name.includes(".") ? client.find<CustomResourceDefinition>(CRDS, { name }, options) : undefined;
}
