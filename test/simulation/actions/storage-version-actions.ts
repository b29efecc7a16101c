import { oneOf } from "../world/random-choices.ts";
import { sort } from "./action-sort.ts";
import { hasCrd, kindOf } from "./choices.ts";

/** A user changes the storage version of a CRD. */
export const flip = sort<{ readonly kind: number; readonly to: string }>({
  name: "flip",
  weight: 3,
  suits: hasCrd,
  choose(random, limits) {
    const kind = kindOf(random, limits);
    return { kind, to: oneOf(random, limits.kinds[kind]?.versions ?? []) };
  },
  async play(world, { kind, to }) {
    const plan = world.kindAt(kind);
    if (plan === undefined) return;
    const answer = await world.user.flip(plan, to);
    world.tell("user", `flip: ${answer?.status ?? "nobody answers"}`);
  },
});
