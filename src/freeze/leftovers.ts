import type { CustomResourceDefinition } from "../api/crd.ts";
import { freezeOwnerOf, hasFreezeAnnotation, ownerAnnotationOf } from "../api/owner.ts";
import { POLICIES } from "../kube/resources.ts";
import { readCrd } from "../resources/read-crd.ts";
import type { CallContext } from "../retry/call-context.ts";
import { unfreeze } from "./freeze.ts";
import { policyGuardOf, removePolicyGuard } from "./guard-install.ts";

/** Whether a run may have left a freeze or a policy of this CRD behind. */
export async function hasLeftovers(context: CallContext, crd: CustomResourceDefinition): Promise<boolean> {
  if (hasFreezeAnnotation(crd)) {
    return freezeOwnerOf(crd) !== undefined;
  }
  const { client, retrier, signal } = context;
  const policy = policyGuardOf(crd.metadata.name);
  return (await retrier.run(() => client.find(POLICIES, policy, { signal }), signal)) !== undefined;
}

/**
 * Takes off what a dead run left behind. The caller holds the Lease of that run, and so knows that it is dead.
 * @param lease `namespace/name` of it
 * @returns the CRD as it is then
 */
export async function removeLeftovers(
  context: CallContext,
  crdName: string,
  lease: string,
): Promise<CustomResourceDefinition> {
  const owner = ownerAnnotationOf(await readCrd(context, crdName));
  if (owner?.lease === lease) {
    await unfreeze(context, crdName, owner);
  }
  await removePolicyGuard(context, crdName, (found) => found?.lease === lease);
  return readCrd(context, crdName);
}
