import { oneOf } from "../world/random-choices.ts";
import type { CrdEdit } from "../world/user-actions.ts";
import { sort } from "./action-sort.ts";
import { hasCrd, kindOf } from "./choices.ts";

/** A user deletes a CRD and creates it again, with another storage version perhaps. */
export const recreateCrd = sort<{ readonly kind: number }>({
  name: "recreateCrd",
  suits: hasCrd,
  choose: (random, limits) => ({ kind: kindOf(random, limits) }),
  text: ({ kind }, names) => `a user deletes the CRD ${names.crd(kind)} with its objects, and creates it again`,
  async play(world, { kind }) {
    const plan = world.kindAt(kind);
    if (plan === undefined || plan.isBuiltIn === true) return;
    await world.user.deleteCrd(plan);
    await world.schedule.wait(500);
    await world.user.createCrd(plan, oneOf(world.streams("user"), plan.versions));
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
  text({ kind, how }, names) {
    const deed = {
      freeze: "freezes",
      freezeAsKsvm: "freezes, with the value of ksvm,",
      unfreeze: "lifts the freeze of",
      takeOwner: "removes the owner of the freeze of",
      nonsense: "writes an owner that there never was into the freeze of",
      label: "writes a label of",
    }[how];
    return `a user ${deed} the CRD ${names.crd(kind)}`;
  },
  async play(world, { kind, how }) {
    const plan = world.kindAt(kind);
    if (plan) await world.user.annotate(plan, how);
  },
});
