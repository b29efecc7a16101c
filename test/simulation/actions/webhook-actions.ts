import { oneOf } from "../world/random-choices.ts";
import { objectsRule } from "../world/user-actions.ts";
import type { World } from "../world/world.ts";
import { sort } from "./action-sort.ts";
import { kindOf, obstacleLastingOf } from "./choices.ts";

/** A webhook denies the objects of a kind, half of them by their names, with a status of its own, for some time. */
export const deny = sort<{
  readonly kind: number;
  readonly ms: number;
  readonly status: number;
  readonly reason: string;
}>({
  name: "deny",
  choose: (random, limits) => ({
    kind: kindOf(random, limits),
    ms: obstacleLastingOf(random),
    status: oneOf(random, [400, 403, 404, 409, 410, 422, 429, 500, 503, 504]),
    reason: oneOf(random, ["", "NotFound", "Conflict", "Gone", "Expired", "TooManyRequests", "Invalid"]),
  }),
  async play(world, { at, kind, ms, status, reason }) {
    const plan = world.kindAt(kind);
    if (plan === undefined) return;
    const name = `deny-${at}`;
    const url = `https://${name}.sim/`;
    let isOver = false;
    world.cluster.webhooks.set(url, async (body) => {
      const { request } = JSON.parse(body) as { request: { uid: string; name: string } };
      const allowed = isOver || request.name.length % 2 === 0;
      const message = `${plan.plural}.sim.example.com "${request.name}" not found`;
      const response = { uid: request.uid, allowed, ...(allowed ? {} : { status: { code: status, reason, message } }) };
      const review = { apiVersion: "admission.k8s.io/v1", kind: "AdmissionReview", response };
      return { status: 200, body: JSON.stringify(review) };
    });
    await world.user.installWebhook(name, objectsRule(plan), { url });
    await world.lasting(ms);
    // A restore may bring its configuration back: then it lets everything pass.
    isOver = true;
    await removed(world, name);
  },
});

async function removed({ user, schedule }: World, name: string): Promise<void> {
  for (let tries = 0; tries < 100; tries++) {
    const answer = await user.removeWebhook(name);
    if (answer?.status === 200 || answer?.status === 404) return;
    await schedule.wait(1_000);
  }
}
