import type { ObjectMeta } from "../../api/meta.ts";
import { CRD_FIELD_MANAGER, OWNER_ANNOTATION } from "../../api/names.ts";
import { type FreezeOwner, formatOwner, parseOwner } from "../../api/owner.ts";
import { KsvmError } from "../../errors.ts";
import { isConflict, type KubeObject } from "../kube/client.ts";
import { APPLY_PATCH, POLICIES, POLICY_BINDINGS, type Resource, WEBHOOK_CONFIGURATIONS } from "../kube/resources.ts";
import { freezePolicyOf, type PolicyObject } from "./freeze-policy.ts";
import type { CallContext } from "../retry/call-context.ts";
import { CONFLICT_PACE, type HolderContext, MAX_CONFLICTS, renewUnlessOwn } from "./freeze.ts";
import { type GuardedCrd, type GuardIdentity, MANAGED_LABELS, WEBHOOK_GUARD } from "./guard.ts";

/** The policy that guards one CRD for the time of one run. */
export function policyGuardOf(crdName: string): GuardIdentity {
  const { policy } = freezePolicyOf(crdName, { labels: {}, annotations: {} });
  return { kind: "policy", name: policy.metadata.name };
}

/**
 * Puts the guard in place where that is this run's business: the policy is, the webhook belongs to the
 * installation. A policy that a dead run on the same Lease left behind is taken over, once a renewal shows that the caller
 * still holds that Lease. That of another run never is.
 * @throws {KsvmError} ForeignFreeze where the policy is not one of a run on this Lease; OwnershipLost where it is one of a run
 *   that holds the Lease now.
 */
export async function installGuard(
  context: HolderContext,
  { crdName, guard }: GuardedCrd,
  owner: FreezeOwner,
): Promise<void> {
  if (guard.kind === "webhook") {
    return;
  }
  const annotations = { [OWNER_ANNOTATION]: formatOwner(owner) };
  const { policy, binding } = freezePolicyOf(crdName, { labels: MANAGED_LABELS, annotations });
  for (const [resource, body] of [
    [POLICIES, policy],
    [POLICY_BINDINGS, binding],
  ] as const) {
    await put(context, resource, body, (found) =>
      renewUnlessOwn(context, owner, ownerOnLease(crdName, resource, found, owner.lease)),
    );
  }
}

/** Whether what belongs to this owner may be taken away. */
type IsOurs = (owner: FreezeOwner | undefined) => boolean | Promise<boolean>;

/** What became of the policy and the binding of a CRD: `kept` where one of them is there and is not ours to remove. */
export type PolicyRemoval = "absent" | "removed" | "kept";

/**
 * Takes away the policy and binding of a CRD, where they are there and `isOurs` takes their owner for ours; the owner is
 * `undefined` where none is noted. The webhook stays. A run that ends takes away its own alone: by then another may have
 * taken over on the same Lease.
 * @param isOurs asked after each read, right before what was read is deleted
 */
export async function removePolicyGuard(context: CallContext, crdName: string, isOurs: IsOurs): Promise<PolicyRemoval> {
  const { name } = policyGuardOf(crdName);
  const [foundBinding, foundPolicy] = await Promise.all([
    findOne(context, POLICY_BINDINGS, { name }),
    findOne(context, POLICIES, { name }),
  ]);
  const binding = await removeOwned(context, POLICY_BINDINGS, foundBinding, isOurs);
  const policy = await removeOwned(context, POLICIES, foundPolicy, isOurs);
  const both = [binding, policy];
  return both.find((one) => one === "kept") ?? both.find((one) => one === "removed") ?? "absent";
}

/**
 * Whom the policy of a CRD and its binding belong to, as far as these are there: `undefined` for one of which no owner is noted. A user may have
 * deleted one of them alone.
 * @throws {ApiError} Forbidden where the user may not see them.
 */
export async function policyOwnersOf(
  context: CallContext,
  crdName: string,
): Promise<readonly (FreezeOwner | undefined)[]> {
  const guard = policyGuardOf(crdName);
  const found = await Promise.all([POLICIES, POLICY_BINDINGS].map((resource) => findOne(context, resource, guard)));
  return found.flatMap((object) => (object === undefined ? [] : [notedOwnerOf(object)]));
}

/** Whether one of them is there. @throws as {@link policyOwnersOf} */
export async function isPolicyGuardThere(context: CallContext, crdName: string): Promise<boolean> {
  return (await policyOwnersOf(context, crdName)).length > 0;
}

/** Whether there is a configuration of the webhook. @throws {ApiError} Forbidden where the user may not see it. */
export async function isWebhookInstalled({ client, retrier, signal }: CallContext): Promise<boolean> {
  const find = (): Promise<unknown> => client.find(WEBHOOK_CONFIGURATIONS, WEBHOOK_GUARD, { signal });
  return (await retrier.run(find, signal)) !== undefined;
}

/** Writes over what `mayTake` accepts, and nothing else: what is read is the precondition of the write. */
async function put(
  context: CallContext,
  resource: Resource,
  body: PolicyObject,
  mayTake: (found: KubeObject) => Promise<void>,
): Promise<void> {
  const { retrier, signal } = context;
  const pace = retrier.pace(CONFLICT_PACE);
  for (let conflicts = 0; ; conflicts++) {
    await pace.turn(signal);
    // There is none, as a rule.
    const found = conflicts === 0 ? undefined : await findOne(context, resource, body.metadata);
    if (found !== undefined) {
      await mayTake(found);
    }
    try {
      // Never broken off half way, so that the cleanup sees what is there.
      await retrier.run(() => write(context, resource, body, found), signal);
      return;
    } catch (error) {
      if (!isConflict(error) || conflicts >= MAX_CONFLICTS) {
        throw error;
      }
    }
  }
}

function write(
  { client }: CallContext,
  resource: Resource,
  body: PolicyObject,
  found: KubeObject | undefined,
): Promise<unknown> {
  const options = { fieldManager: CRD_FIELD_MANAGER };
  if (found === undefined) {
    return client.create(resource, { ...body }, options);
  }
  const { uid, resourceVersion } = found.metadata;
  const patch = { type: APPLY_PATCH, body: { ...body, metadata: { ...body.metadata, uid, resourceVersion } } };
  return client.patch(resource, body.metadata, patch, { ...options, force: true });
}

/** @returns the run on this Lease that it belongs to @throws {KsvmError} ForeignFreeze where it belongs to none */
function ownerOnLease(crdName: string, { resource }: Resource, found: KubeObject, lease: string): FreezeOwner {
  const owner = notedOwnerOf(found);
  if (owner?.lease === lease) {
    return owner;
  }
  const by = owner === undefined ? "another client" : `a run that holds Lease "${owner.lease}"`;
  throw new KsvmError(
    "ForeignFreeze",
    `Cannot migrate "${crdName}": ${resource} "${found.metadata.name}" belongs to ${by}; wait for it to end, or remove the ` +
      `policy with: ksvm unfreeze ${crdName}`,
  );
}

function findOne(
  { client, retrier, signal }: CallContext,
  resource: Resource,
  { name }: { readonly name: string },
): Promise<KubeObject | undefined> {
  return retrier.run(() => client.find<KubeObject>(resource, { name }, { signal }), signal);
}

/** Deletes what was read. Where another client wrote it in between, it is read again: it may be of another run by then. */
async function removeOwned(
  context: CallContext,
  resource: Resource,
  first: KubeObject | undefined,
  isOurs: IsOurs,
): Promise<PolicyRemoval> {
  const { client, retrier, signal } = context;
  const pace = retrier.pace(CONFLICT_PACE);
  let found = first;
  for (let conflicts = 0; ; conflicts++) {
    await pace.turn(signal);
    if (found === undefined) return conflicts === 0 ? "absent" : "removed";
    const { metadata } = found;
    if (!isIdentified(metadata) || !(await isOurs(notedOwnerOf(found)))) return "kept";
    const { uid, resourceVersion, name } = metadata;
    try {
      const options = { preconditions: { uid, resourceVersion }, signal };
      await retrier.run(() => client.delete(resource, { name }, options), signal);
      return "removed";
    } catch (error) {
      if (!isConflict(error) || conflicts >= MAX_CONFLICTS) throw error;
      found = await findOne(context, resource, { name });
    }
  }
}

function notedOwnerOf({ metadata }: KubeObject): FreezeOwner | undefined {
  return parseOwner(metadata.annotations?.[OWNER_ANNOTATION]);
}

function isIdentified(metadata: KubeObject["metadata"]): metadata is ObjectMeta {
  return [metadata.name, metadata.uid, metadata.resourceVersion].every((value) => value !== undefined);
}
