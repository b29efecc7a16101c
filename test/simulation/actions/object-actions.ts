import { oneOf } from "../world/random-choices.ts";
import { sort } from "./action-sort.ts";
import { kindOf } from "./choices.ts";

/** A user writes an object. */
export const writeObject = sort<{
  readonly kind: number;
  readonly how: "create" | "update" | "delete";
  readonly object: number;
}>({
  name: "writeObject",
  weight: 2,
  choose: (random, limits) => ({
    kind: kindOf(random, limits),
    how: oneOf(random, ["create", "update", "delete"]),
    object: Math.floor(random() * 30),
  }),
  async play(world, { kind, how, object }) {
    const plan = world.kindAt(kind);
    if (plan) await world.user[how](plan, oneOf(world.streams("user"), plan.versions), object);
  },
});
