import type { CustomResourceDefinition } from "../../../src/api/crd.ts";
import { MIGRATING_ANNOTATION, OWNER_ANNOTATION } from "../../../src/api/names.ts";
import { freezerOf } from "../../../src/api/owner.ts";
import { CRDS, objectPath, POLICIES, POLICY_BINDINGS } from "../../../src/kube/resources.ts";
import { CRD_PREFIX } from "../model/crd-registry.ts";
import type { EtcdEntry } from "../model/timeline.ts";
import type { KindPlan } from "../plan.ts";
import { crdNameOf } from "../world/kinds.ts";
import type { Answered } from "../world/user-actions.ts";
import type { World } from "../world/world.ts";

/** What users may take to put things right, in milliseconds. */
const REPAIR_MS = 600_000;

/** Whether users undo their own changes at the end of a world. In the others ksvm has to live with it. */
export function isPutRight({ plan }: World): boolean {
  return (plan.seed >> 3) % 2 === 0;
}

/** Users who freeze a CRD, or have its owner name a Lease that is not of a run on this CRD, so that nobody can judge it, lift it themselves. */
export function isForeign(crd: CustomResourceDefinition | undefined): boolean {
  const freezer = crd && freezerOf(crd.metadata);
  return freezer?.kind === "other" || (freezer?.kind === "run" && freezer.owner.identity === "nobody");
}

/** A policy that a user has made under a name of ksvm. */
function isUsers({ object }: EtcdEntry): boolean {
  return object.metadata.annotations?.[OWNER_ANNOTATION] === undefined;
}

/** Does it, and lets the world go on until it is done. */
export async function putRight(world: World, repair: () => Promise<void>): Promise<void> {
  let isDone = false;
  void repair().then(() => (isDone = true));
  const isOver = await world.schedule.run(() => isDone || world.isBroken, REPAIR_MS);
  if (!isOver) world.violate("error: users cannot undo their own changes");
}

/** Users lift the freezes that they have put on. */
export async function liftOwnFreezes(world: World): Promise<void> {
  for (const kind of world.plan.kinds) if (kind.isBuiltIn !== true) await lift(world, kind);
}

/** Users have deleted the policies that they made under names of ksvm: where etcd was restored since, they do so again. */
export async function deleteOwnPolicies(world: World): Promise<void> {
  for (const resource of [POLICY_BINDINGS, POLICIES]) {
    const prefix = `/registry/${resource.resource}/`;
    for (const entry of world.cluster.etcd.range(`${prefix}ksvm-freeze.`)) {
      const path = objectPath(resource, { name: entry.key.slice(prefix.length) });
      if (isUsers(entry)) await insist(world, () => world.user.send("DELETE", path));
    }
  }
}

async function lift(world: World, kind: KindPlan): Promise<void> {
  const name = crdNameOf(kind);
  const crd = world.cluster.etcd.get(`${CRD_PREFIX}${name}`)?.object as unknown as CustomResourceDefinition | undefined;
  const annotations = { [MIGRATING_ANNOTATION]: null, [OWNER_ANNOTATION]: null };
  if (isForeign(crd)) {
    await insist(world, () => world.user.merge(objectPath(CRDS, { name }), { metadata: { annotations } }));
  }
}

/** Does something until it is done. */
export function insist({ schedule, user }: World, send: () => Promise<Answered | undefined>): Promise<void> {
  return user.until(send, () => schedule.wait(1_000));
}
