import { isFields } from "../model/model-object.ts";
import { collectionOf, objectOf, objectsPrefixOf } from "../world/kinds.ts";
import { oneIn, oneOf } from "../world/random-choices.ts";
import { MERGE } from "../world/user-actions.ts";
import { sort } from "./action-sort.ts";
import { kindOf, lastingOf } from "./choices.ts";
import { mayComeLate, untilWritten } from "./unanswered-writes.ts";

interface OfObject {
  readonly kind: number;
  readonly object: number;
}

/** A user deletes an object that has a finalizer, which is taken off some time later. */
export const terminate = sort<OfObject & { readonly ms: number }>({
  name: "terminate",
  choose: (random, limits) => ({
    kind: kindOf(random, limits),
    object: Math.floor(random() * 10),
    ms: lastingOf(random),
  }),
  async play(world, { kind, object, ms }) {
    const {
      cluster,
      plan: { kinds },
      schedule,
      user,
    } = world;
    const plan = kinds[kind];
    if (plan === undefined) return;
    const path = `${collectionOf(plan, plan.versions.at(-1) ?? "")}/${plan.plural}-${object}`;
    const key = `${objectsPrefixOf(plan)}${object}`;
    // An API server that does not know the CRD yet answers 404: what counts is what etcd has.
    const isHeld = (): boolean => cluster.etcd.get(key)?.object.metadata.finalizers !== undefined;
    const held = await user.send("PATCH", path, { metadata: { finalizers: ["sim.example.com/waits"] } }, MERGE);
    await user.send("DELETE", path);
    await world.lasting(ms);
    if (mayComeLate(held)) await untilWritten(world);
    for (let tries = 0; tries < 200 && isHeld(); tries++) {
      await user.send("PATCH", path, { metadata: { finalizers: null } }, MERGE);
      await schedule.wait(5_000);
    }
  },
});

/** Users delete objects, and create others with the same names at once. */
export const recreateObjects = sort<{ readonly kind: number; readonly count: number; readonly ms: number }>({
  name: "recreateObjects",
  choose: (random, limits) => ({
    kind: kindOf(random, limits),
    count: oneOf(random, [1, 3, 10]),
    ms: lastingOf(random),
  }),
  async play(world, { kind, count, ms }) {
    const plan = world.plan.kinds[kind];
    if (plan === undefined) return;
    const random = world.streams("recreateObjects");
    for (let index = 0; index < count; index++) {
      const version = oneOf(random, plan.versions);
      const path = collectionOf(plan, version);
      const object = Math.floor(random() * 30);
      await world.user.send("DELETE", `${path}/${plan.plural}-${object}`);
      await world.user.send("POST", path, objectOf(plan, version, object, index));
      await world.schedule.wait(ms / count);
    }
  },
});

/** A user replaces an object by what was read some time before, or without managedFields, as `kubectl replace` does it. */
export const replaceOld = sort<OfObject & { readonly how: "old" | "unmanaged"; readonly ms: number }>({
  name: "replaceOld",
  choose: (random, limits) => ({
    kind: kindOf(random, limits),
    object: Math.floor(random() * 10),
    how: oneIn(random, 2) ? "old" : "unmanaged",
    ms: lastingOf(random),
  }),
  async play({ plan: { kinds }, schedule, user }, { kind, object, how, ms }) {
    const plan = kinds[kind];
    if (plan === undefined) return;
    const path = `${collectionOf(plan, plan.versions[0] ?? "")}/${plan.plural}-${object}`;
    const before = await user.send("GET", path);
    await schedule.wait(ms);
    const now = await user.send("GET", path);
    if (before?.status !== 200 || now?.status !== 200) return;
    const { managedFields } = before.body.metadata;
    const { resourceVersion, uid } = now.body.metadata;
    const metadata = {
      ...before.body.metadata,
      resourceVersion,
      uid,
      managedFields: how === "old" ? managedFields : [{}],
    };
    const { spec } = before.body;
    await user.send("PUT", path, {
      ...before.body,
      metadata,
      spec: isFields(spec) ? { ...spec, replaced: how } : spec,
    });
  },
});
