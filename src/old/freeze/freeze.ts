import type { CustomResourceDefinition } from "../../api/crd.ts";
import { CRD_FIELD_MANAGER, MIGRATING_ANNOTATION, MIGRATING_VALUE, OWNER_ANNOTATION } from "../../api/names.ts";
import { type FreezeOwner, formatOwner, freezeOwnerOf, freezerOf, isSameRun, ownerAnnotationOf } from "../../api/owner.ts";
import { KsvmError } from "../../errors.ts";
import { isAbsent } from "../kube/absent.ts";
import { isConflict } from "../kube/client.ts";
import { failureKindOf, mayBeDone } from "../kube/failure.ts";
import { CRDS, MERGE_PATCH } from "../kube/resources.ts";
import { readCrd } from "../../resources/read-crd.ts";
import type { CallContext } from "../retry/call-context.ts";

/** How often a write is tried again whose resourceVersion another client moved in between. */
export const MAX_CONFLICTS = 20;
/** How soon, in milliseconds. */
export const CONFLICT_PACE = { minMs: 20, maxMs: 1_000 } as const;

/** What the holder of a Lease calls API servers with. Its client writes nothing once the Lease is lost. */
export interface HolderContext extends CallContext {
  /**
   * Renews the Lease, however lately that was done. Awaited after what another run left on this Lease was read, and before that is
   * written over or taken away: the Lease may have been deleted a moment ago, and that run may hold it now.
   * @throws {KsvmError} OwnershipLost if another run holds it.
   */
  readonly renew: () => Promise<void>;
}

/** Annotations to set, and with null to take off. */
export type Annotations = Readonly<Record<string, string | null>>;

/** Told of a write that failed and may be done yet: with the resourceVersion that is its precondition. */
type OnDoubt = (resourceVersion: string) => void;

/**
 * Adds the migrating annotation and the owner to a CRD, with its resourceVersion as precondition. A freeze that a dead
 * run on the same Lease left behind is taken over, once a renewal shows that the caller still holds that Lease.
 *
 * @param options `besides`: what the same write sets; `onDoubt`: told of the resourceVersion for {@link unfreeze}
 * @returns the CRD as it is frozen
 * @throws {KsvmError} ForeignFreeze if another owner froze it; OwnershipLost if a run did that holds the Lease now; whatever the
 *   client's fence throws.
 */
export function freeze(
  context: HolderContext,
  crdName: string,
  owner: FreezeOwner,
  { besides = {}, onDoubt }: { readonly besides?: Annotations; readonly onDoubt?: OnDoubt } = {},
): Promise<CustomResourceDefinition> {
  const change = async (crd: CustomResourceDefinition): Promise<Annotations> => {
    assertNotForeign(crd, owner.lease);
    await renewUnlessOwn(context, owner, freezeOwnerOf(crd));
    return { ...besides, [MIGRATING_ANNOTATION]: MIGRATING_VALUE, [OWNER_ANNOTATION]: formatOwner(owner) };
  };
  return updateCrd(context, crdName, change, onDoubt);
}

/** Renews the Lease where what was found belongs to another run. To be awaited before it is written over. */
export async function renewUnlessOwn(
  { renew }: HolderContext,
  owner: FreezeOwner,
  found: FreezeOwner | undefined,
): Promise<void> {
  if (found !== undefined && !isSameRun(found, owner)) {
    await renew();
  }
}

/**
 * Takes the freeze of this owner's run off, whichever of its attempts put it on: a restore of etcd may bring back that of
 * an earlier one. One that belongs to another run or client by now is left alone. Of one that is gone already the owner is
 * taken off: a user who lifts a freeze with kubectl takes one annotation off, and the other would name a run that is over.
 * @param options `besides`: what the same write sets or takes off; `lateFreezeAt`: the resourceVersion of a CRD that this run may freeze yet,
 *   which it cannot any more then
 * @returns whether there was a freeze to take off
 * @throws {ApiError | TransportError | KsvmError} where the API server cannot be made to take it.
 */
export async function unfreeze(
  context: CallContext,
  crdName: string,
  owner: FreezeOwner,
  { besides = {}, lateFreezeAt }: { readonly besides?: Annotations; readonly lateFreezeAt?: string | undefined } = {},
): Promise<boolean> {
  let lifted = false;
  try {
    if (lateFreezeAt !== undefined) await forestall(context, crdName, owner, lateFreezeAt);
    await updateCrd(context, crdName, (crd) => {
      const found = ownerAnnotationOf(crd);
      const isOurs = found !== undefined && isSameRun(found, owner);
      lifted = isOurs && freezeOwnerOf(crd) !== undefined;
      const migrating = lifted ? { [MIGRATING_ANNOTATION]: null } : {};
      return isOurs ? { ...besides, ...migrating, [OWNER_ANNOTATION]: null } : undefined;
    });
  } catch (error) {
    // The CRD was deleted, and its annotation with it.
    if (!isAbsent(error, crdName)) {
      throw error;
    }
  }
  return lifted;
}

/**
 * Makes the precondition of a freeze fail that an API server may write yet. Nothing is to be done where the CRD was written since, be it by that
 * freeze. What is written is the owner alone, which freezes nothing: it is taken off as that of a freeze that a user lifted.
 */
async function forestall(context: CallContext, crdName: string, owner: FreezeOwner, at: string): Promise<void> {
  await updateCrd(context, crdName, ({ metadata }) =>
    metadata.resourceVersion === at ? { [OWNER_ANNOTATION]: formatOwner(owner) } : undefined,
  );
}

/**
 * Refuses a CRD whose freeze does not come from a run on this Lease.
 * @throws {KsvmError} ForeignFreeze
 */
export function assertNotForeign(crd: CustomResourceDefinition, lease: string): void {
  const freezer = freezerOf(crd.metadata);
  if (freezer === undefined || (freezer.kind === "run" && freezer.owner.lease === lease)) {
    return;
  }
  const { name } = crd.metadata;
  const manager =
    freezer.kind === "other" && freezer.manager !== undefined ? ` (field manager "${freezer.manager}")` : "";
  const by =
    freezer.kind === "run" ? `a run that holds Lease "${freezer.owner.lease}"` : `something other than ksvm${manager}`;
  throw new KsvmError(
    "ForeignFreeze",
    `Cannot migrate "${name}": its storage version is frozen by ${by} (annotation ${MIGRATING_ANNOTATION}); wait for ` +
      `it to end, or lift the freeze with: kubectl annotate crd ${name} ${MIGRATING_ANNOTATION}-`,
  );
}

/**
 * Changes annotations of a CRD, with the resourceVersion that `change` has decided on as precondition. If another
 * client writes it in between, `change` decides again; where it returns `undefined`, nothing is written.
 * @param onDoubt told of each write whose outcome is unknown
 * @throws {ApiError} NotFound where the CRD does not exist; Conflict where others write it again and again.
 */
export async function updateCrd(
  context: CallContext,
  crdName: string,
  change: (crd: CustomResourceDefinition) => Annotations | undefined | Promise<Annotations>,
  onDoubt?: OnDoubt,
): Promise<CustomResourceDefinition> {
  const { client, retrier, signal } = context;
  const ref = { name: crdName };
  const pace = retrier.pace(CONFLICT_PACE);
  for (let conflicts = 0; ; conflicts++) {
    await pace.turn(signal);
    const crd = await readCrd(context, crdName);
    const annotations = await change(crd);
    if (annotations === undefined) {
      return crd;
    }
    const { resourceVersion, uid } = crd.metadata;
    const patch = { type: MERGE_PATCH, body: { metadata: { uid, resourceVersion, annotations } } };
    // Never broken off half way: a freeze that lands after it was given up has to be forestalled.
    const options = { fieldManager: CRD_FIELD_MANAGER };
    const write = (): Promise<CustomResourceDefinition> => client.patch(CRDS, ref, patch, options);
    const onFailure = (error: unknown): never => {
      // What no request raised was not sent, and what admission denied is not written.
      if (failureKindOf(error) === "transient" && mayBeDone(error)) onDoubt?.(resourceVersion);
      throw error;
    };
    try {
      return await retrier.run(() => write().catch(onFailure), signal);
    } catch (error) {
      if (!isConflict(error) || conflicts >= MAX_CONFLICTS) {
        throw error;
      }
    }
  }
}
