import type { CustomResourceDefinition } from "../../api/crd.ts";
import { type FreezeOwner, freezeOwnerOf, ownerAnnotationOf } from "../../api/owner.ts";
import { KsvmError } from "../../errors.ts";
import { isForbidden } from "../kube/failure.ts";
import { CHECKPOINT_KEY_ANNOTATION } from "../../api/names.ts";
import { readCrd } from "../../resources/read-crd.ts";
import type { CallContext } from "../retry/call-context.ts";
import { type HolderContext, unfreeze, updateCrd } from "./freeze.ts";
import { isPolicyGuardThere, removePolicyGuard } from "./guard-install.ts";

/**
 * Whether a run may have left a freeze or a policy of this CRD behind. A policy that the user may not see is not this user's to remove: beside
 * the webhook a run needs no right on policies, and one that is left denies the proof of its freeze, so that nothing is pruned.
 */
export async function hasLeftovers(context: CallContext, crd: CustomResourceDefinition): Promise<boolean> {
  if (freezeOwnerOf(crd) !== undefined || hasCheckpointKey(crd)) {
    return true;
  }
  return (await unlessForbidden(isPolicyGuardThere(context, crd.metadata.name))) ?? false;
}

/**
 * Takes off what a dead run left behind. A renewal of its Lease shows that it is dead, after what it left was read: the Lease may
 * have been deleted a moment ago, and be that of a run that lives.
 * @param lease `namespace/name` of it
 * @returns the CRD as it is then
 * @throws {KsvmError} OwnershipLost where another run holds the Lease now.
 */
export async function removeLeftovers(
  context: HolderContext,
  crdName: string,
  lease: string,
): Promise<CustomResourceDefinition> {
  const crd = await readCrd(context, crdName);
  const owner = ownerAnnotationOf(crd);
  const isOfDead = async (found: FreezeOwner | undefined): Promise<boolean> => {
    if (found?.lease !== lease) {
      return false;
    }
    await context.renew();
    return true;
  };
  const isLeft = await isOfDead(owner);
  if (owner !== undefined && isLeft) {
    await unfreeze(context, crdName, owner);
  }
  await unlessForbidden(removePolicyGuard(context, crdName, isOfDead));
  return isLeft ? readCrd(context, crdName) : crd;
}

/** For {@link tryRemoveLeftovers}, in milliseconds. */
const TRY_MS = 10_000;

/**
 * The same for a run that freezes nothing. It holds the Lease that shows that the dead run is dead, so nobody else can do it. It does not need to be done,
 * either: the run goes on where the user may not do it, or where it does not work within ten seconds.
 * @param owner of what the CRD has
 * @param onFailure told why it could not be done
 * @throws as {@link removeLeftovers}.
 */
export async function tryRemoveLeftovers(
  context: HolderContext,
  {
    crdName,
    lease,
    owner,
  }: { readonly crdName: string; readonly lease: string; readonly owner: FreezeOwner | undefined },
  onFailure: (error: unknown) => void,
): Promise<void> {
  if (owner?.lease !== lease) {
    return;
  }
  const retrier = context.retrier.with({ maxIdleMs: TRY_MS, webhookWaitMs: TRY_MS });
  await removeLeftovers({ ...context, retrier }, crdName, lease).catch((error: unknown) => {
    context.signal.throwIfAborted();
    if (error instanceof KsvmError && error.code === "OwnershipLost") {
      throw error;
    }
    onFailure(error);
  });
}

/**
 * Takes the key of checkpoints off a CRD on which nothing is left to do.
 * @throws as `updateCrd()`.
 */
export async function removeCheckpointKey(context: CallContext, crdName: string): Promise<void> {
  await updateCrd(context, crdName, (crd) =>
    hasCheckpointKey(crd) ? { [CHECKPOINT_KEY_ANNOTATION]: null } : undefined,
  );
}

/**
 * Puts another key of checkpoints in the place of one.
 * @throws as `updateCrd()`.
 */
export async function replaceCheckpointKey(
  context: CallContext,
  crdName: string,
  { by, key }: { readonly key: string; readonly by: string },
): Promise<void> {
  await updateCrd(context, crdName, ({ metadata: { annotations } }) =>
    annotations?.[CHECKPOINT_KEY_ANNOTATION] === key ? { [CHECKPOINT_KEY_ANNOTATION]: by } : undefined,
  );
}

function hasCheckpointKey({ metadata }: CustomResourceDefinition): boolean {
  return Object.hasOwn(metadata.annotations ?? {}, CHECKPOINT_KEY_ANNOTATION);
}

/** `undefined` where the user may not do it. */
async function unlessForbidden<T>(work: Promise<T>): Promise<T | undefined> {
  try {
    return await work;
  } catch (error) {
    if (isForbidden(error)) {
      return undefined;
    }
    throw error;
  }
}
