import { CRD_FIELD_MANAGER, OWNER_ANNOTATION } from "../api/names.ts";
import { type FreezeOwner, formatOwner, parseOwner } from "../api/owner.ts";
import { isConflict, type KubeObject } from "../kube/client.ts";
import { APPLY_PATCH, POLICIES, POLICY_BINDINGS, type Resource, WEBHOOK_CONFIGURATIONS } from "../kube/resources.ts";
import { freezePolicyOf } from "../webhook/freeze-policy.ts";
import type { FreezeContext } from "./freeze.ts";
import { type GuardIdentity, MANAGED_LABELS, WEBHOOK_GUARD } from "./guard.ts";
import type { GuardChoice } from "./run-context.ts";

/** Which guard a run on this CRD goes by. `auto` is the webhook where its configuration is installed. */
export async function chooseGuard(
  context: FreezeContext,
  crdName: string,
  choice: GuardChoice,
): Promise<GuardIdentity> {
  if (choice === "webhook" || (choice === "auto" && (await isWebhookInstalled(context)))) {
    return WEBHOOK_GUARD;
  }
  return policyGuardOf(crdName);
}

/** The policy that guards one CRD for the time of one run. */
export function policyGuardOf(crdName: string): GuardIdentity {
  const { policy } = freezePolicyOf(crdName, { labels: {}, annotations: {} });
  return { kind: "policy", name: policy.metadata.name };
}

/**
 * Puts the guard in place where that is this run's business: the policy is, the webhook belongs to whoever installed
 * it. A policy that a dead run on the same Lease left behind is taken over.
 */
export async function installGuard(
  context: FreezeContext,
  crdName: string,
  guard: GuardIdentity,
  owner: FreezeOwner,
): Promise<void> {
  if (guard.kind === "webhook") {
    return;
  }
  const annotations = { [OWNER_ANNOTATION]: formatOwner(owner) };
  const { policy, binding } = freezePolicyOf(crdName, { labels: MANAGED_LABELS, annotations });
  await apply(context, POLICIES, policy);
  await apply(context, POLICY_BINDINGS, binding);
}

/**
 * Takes away the policy and binding of a CRD, where they are there and `isOurs` takes their owner for ours. The webhook
 * stays. A run that ends takes away its own alone: by then another may have taken over on the same Lease.
 */
export async function removePolicyGuard(
  context: FreezeContext,
  crdName: string,
  isOurs: (owner: FreezeOwner) => boolean,
): Promise<void> {
  const { name } = policyGuardOf(crdName);
  await removeOwned(context, POLICY_BINDINGS, name, isOurs);
  await removeOwned(context, POLICIES, name, isOurs);
}

async function isWebhookInstalled({ client, retrier, signal }: FreezeContext): Promise<boolean> {
  const find = (): Promise<unknown> => client.find(WEBHOOK_CONFIGURATIONS, WEBHOOK_GUARD, { signal });
  return (await retrier.run(find, signal)) !== undefined;
}

async function apply(
  { client, retrier, signal }: FreezeContext,
  resource: Resource,
  body: { readonly metadata: { readonly name: string } },
): Promise<void> {
  // Never broken off half way, so that the cleanup sees what is there.
  const options = { fieldManager: CRD_FIELD_MANAGER, force: true };
  await retrier.run(() => client.patch(resource, body.metadata, { type: APPLY_PATCH, body }, options), signal);
}

async function removeOwned(
  context: FreezeContext,
  resource: Resource,
  name: string,
  isOurs: (owner: FreezeOwner) => boolean,
): Promise<void> {
  const { client, retrier, signal } = context;
  const found = await retrier.run(() => client.find<KubeObject>(resource, { name }, { signal }), signal);
  const { uid, resourceVersion, annotations } = found?.metadata ?? {};
  const owner = parseOwner(annotations?.[OWNER_ANNOTATION]);
  if (uid === undefined || resourceVersion === undefined || owner === undefined || !isOurs(owner)) {
    return;
  }
  const remove = (): Promise<void> =>
    client.delete(resource, { name }, { preconditions: { uid, resourceVersion }, signal });
  await retrier.run(remove, signal).catch((error: unknown) => {
    // Another run took it over in between: it is that run's to remove.
    if (!isConflict(error)) {
      throw error;
    }
  });
}
