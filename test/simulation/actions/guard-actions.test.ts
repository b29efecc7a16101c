import tap from "tap";
import type { KindPlan } from "../plan.ts";
import type { SimCluster } from "../world/sim-cluster.ts";
import { type Answered, UserActions } from "../world/user-actions.ts";
import type { World } from "../world/world.ts";
import { foreignPolicy } from "./guard-actions.ts";

const NAME = "ksvm-freeze.widgets.sim.example.com";

/** A user who gets this answer to the POST, and a policy that etcd has some time later, which is when an API server that stands still goes on. */
function played(post: number | undefined, writtenAfterMs: number | undefined, owner = "user") {
  let now = 0;
  const sent: string[] = [];
  let isRemoved = false;
  const isThere = (): boolean => !isRemoved && writtenAfterMs !== undefined && now >= writtenAfterMs;
  const labels = { "sim.example.com/created-by": owner };
  const answerTo = (method: string): Answered | undefined => {
    sent.push(method);
    if (method === "POST") return post === undefined ? undefined : { status: post, body: { metadata: {} } as never };
    const status = isThere() ? 200 : 404;
    isRemoved ||= isThere();
    return { status, body: { metadata: {} } as never };
  };
  const user = Object.assign(new UserActions({} as SimCluster, "user", () => 0), {
    send: async (method: string) => answerTo(method),
  });
  const world = {
    kindAt: () => ({ plural: "widgets" }) as KindPlan,
    cluster: {
      etcd: { get: () => (isThere() ? { object: { metadata: { name: NAME, labels } } } : undefined) },
      get nodes() {
        return [{ process: { isPaused: now < (writtenAfterMs ?? 0) } }];
      },
    },
    schedule: { wait: async (ms: number) => void (now += ms) },
    lasting: async (ms: number) => void (now += ms),
    user,
  } as unknown as World;
  return { sent, isThere, play: async () => foreignPolicy.play(world, { at: 0, kind: 0, ms: 100 } as { at: number }) };
}

for (const post of [201, 504, undefined]) {
  await tap.test(`a user removes the policy of ksvm's name that the POST answered with ${post} wrote`, async (t) => {
    const { isThere, play, sent } = played(post, 0);
    await play();
    t.same(sent, ["POST", "DELETE"]);
    t.notOk(isThere());
  });
}

for (const writtenAfterMs of [30_000, 1_800_000]) {
  await tap.test(`a user removes a policy that is written ${writtenAfterMs} ms after the 504`, async (t) => {
    const { isThere, play, sent } = played(504, writtenAfterMs);
    await play();
    t.same(sent, ["POST", "DELETE"]);
    t.notOk(isThere());
  });
}

await tap.test("a user removes no policy that another client created", async (t) => {
  for (const post of [409, 504]) {
    const { isThere, play, sent } = played(post, 0, "ksvm");
    await play();
    t.same(sent, ["POST"], `${post}`);
    t.ok(isThere());
  }
});
