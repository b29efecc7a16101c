import { oneOf } from "../world/random-choices.ts";
import type { LeaseEdit } from "../world/user-actions.ts";
import { sort } from "./action-sort.ts";
import { kindOf } from "./choices.ts";

/** A user edits the Lease of a run. */
export const editLease = sort<{ readonly kind: number; readonly how: LeaseEdit }>({
  name: "editLease",
  choose: (random, limits) => ({
    kind: kindOf(random, limits),
    how: oneOf(random, ["delete", "steal", "checkpoint", "forge", "replay"]),
  }),
  async play(world, { kind, how }) {
    const plan = world.kindAt(kind);
    if (plan) await world.user.editLease(plan, how);
  },
});
