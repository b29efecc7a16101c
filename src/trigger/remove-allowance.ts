import { ALLOW_PRUNE_ANNOTATION, CRD_FIELD_MANAGER } from "../api/names.ts";
import type { ApiClient } from "../kube/client.ts";
import { CRDS, MERGE_PATCH } from "../kube/resources.ts";

/** A CRD as it was when its annotation that allows a prune had done its work. */
interface SpentCrd {
  readonly name: string;
  readonly uid: string;
  readonly resourceVersion: string;
}

/**
 * Takes the annotation that allows a prune off a CRD, so that it is not there when the same version is stored again.
 * @throws {ApiError} Conflict where another client wrote the CRD since; {ApiError | TransportError}
 */
export async function removeAllowance(
  client: Pick<ApiClient, "patch">,
  { name, uid, resourceVersion }: SpentCrd,
  signal: AbortSignal,
): Promise<void> {
  const metadata = { uid, resourceVersion, annotations: { [ALLOW_PRUNE_ANNOTATION]: null } };
  await client.patch(
    CRDS,
    { name },
    { type: MERGE_PATCH, body: { metadata } },
    { fieldManager: CRD_FIELD_MANAGER, signal },
  );
}
