import { freezerOf } from "../../../src/api/owner.ts";
import { CRD_PREFIX } from "../model/crd-registry.ts";
import { crdNameOf } from "../world/kinds.ts";
import { oneOf } from "../world/random-choices.ts";
import type { CrdEdit } from "../world/user-actions.ts";
import { sort } from "./action-sort.ts";
import { hasCrd, kindOf } from "./choices.ts";

/** A user deletes a CRD and creates it again, with another storage version perhaps. */
export const recreateCrd = sort<{ readonly kind: number }>({
  name: "recreateCrd",
  suits: hasCrd,
  choose: (random, limits) => ({ kind: kindOf(random, limits) }),
  async play(world, { kind }) {
    const plan = world.kindAt(kind);
    if (plan === undefined || plan.isBuiltIn === true) return;
    await world.user.deleteCrd(plan);
    await world.schedule.wait(500);
    await world.user.createCrd(plan, oneOf(world.streams("user"), plan.versions));
  },
});

/** What a run left that died is gone by now. For plans that are written by hand: no seed says by when that has to be. */
export const expectUnfrozen = sort<{ readonly kind: number }>({
  name: "expectUnfrozen",
  suits: () => false,
  choose: () => ({ kind: 0 }),
  play(world, { kind }) {
    const plan = world.kindAt(kind);
    const crd = plan && world.cluster.etcd.get(`${CRD_PREFIX}${crdNameOf(plan)}`)?.object;
    const freezer = crd && freezerOf(crd.metadata);
    if (freezer?.kind !== "run") return;
    const name = freezer.owner.identity.replace(/_1.*$/, "");
    const isAlive = world.programs.some((program) => program?.process.name === name && program.process.isAlive);
    if (!isAlive) world.violate(`left: the dead run of ${name} has ${crd?.metadata.name} frozen`);
  },
});

/** A user edits the annotations of a freeze, or a label. */
export const annotate = sort<{
  readonly kind: number;
  readonly how: CrdEdit;
}>({
  name: "annotate",
  suits: hasCrd,
  choose: (random, limits) => ({
    kind: kindOf(random, limits),
    how: oneOf(random, ["freeze", "freezeAsKsvm", "unfreeze", "takeOwner", "nonsense", "label"]),
  }),
  async play(world, { kind, how }) {
    const plan = world.kindAt(kind);
    if (plan) await world.user.annotate(plan, how);
  },
});
