import tap from "tap";
import type { Action, Plan } from "../plan.ts";
import { shrink } from "./shrink.ts";

const at = (seconds: number, action: object): Action => ({ at: seconds * 1_000 + 123, ...action }) as Action;

/** Twenty actions of which three have a part in what fails. */
const PLAN = {
  seed: 7,
  servers: 3,
  access: "sampled",
  kinds: [{ plural: "widgets", versions: ["v1alpha1", "v1"], createdIn: "v1alpha1", objects: 30 }],
  programs: [0, 1].map(() => ({ run: "migrate", kind: 0, force: true }) as const),
  writeEveryMs: 317.25,
  actions: [
    at(2, { do: "flip", kind: 0, to: "v1" }),
    ...Array.from({ length: 8 }, (_, index) => at(3 + index, { do: "compact" })),
    at(20, { do: "hangServer", server: 2, ms: 98_765 }),
    ...Array.from({ length: 9 }, (_, index) => at(21 + index, { do: "create", kind: 0, object: index })),
    at(40, { do: "start", program: 1 }),
  ],
} as Plan;

/** Fails as long as the storage version changes, a server hangs for more than 10 s and a program starts, in this order. */
function isBroken({ actions }: Plan): boolean {
  const names = actions.map((action) =>
    action.do === "hangServer" && (action.ms ?? 0) <= 10_000 ? "short" : action.do,
  );
  const wanted = ["flip", "hangServer", "start"];
  return (
    names.filter((name) => name === wanted[0]).length > 0 &&
    names.filter((name) => wanted.includes(name)).join() === wanted.join()
  );
}

const play = async (plan: Plan): Promise<string | undefined> =>
  isBroken(plan) ? `S1: ${plan.actions.length} objects are lost` : undefined;

await tap.test("shrink() leaves the actions that have a part in the violation, in the smallest world", async (t) => {
  const { plan, violation, plays } = await shrink(PLAN, "S1: 20 objects are lost", { play });
  t.same(
    plan.actions.map((action) => action.do),
    ["flip", "hangServer", "start"],
  );
  t.equal(violation, "S1: 3 objects are lost");
  t.equal(plan.programs.length, 1);
  t.match(plan, {
    servers: 1,
    programs: [{ run: "migrate", kind: 0, force: false }],
    access: "each",
    writeEveryMs: 10_000_000,
    kinds: [{ objects: 1 }],
  });
  t.match(plan.actions[1], { server: 0 });
  const { ms = 0 } = plan.actions[1] ?? {};
  t.ok(ms > 10_000 && ms < 20_000, `${ms}`);
  t.match(plan.actions[2], { program: 0 });
  t.ok(plays <= 600, `${plays} plays`);
});

const playOrHang = async (plan: Plan): Promise<string | undefined> =>
  (await play(plan)) ?? (plan.actions.length > 0 ? "liveness: a run does not end" : "error: nothing to do");

await tap.test("shrink() does not count another kind of violation", async (t) => {
  const { plan, violation } = await shrink(PLAN, "S1: 20 objects are lost", { play: playOrHang });
  t.equal(plan.actions.length, 3);
  t.match(violation, /^S1: /);
});

await tap.test("shrink() tries other seeds where chance decides, and says which one failed", async (t) => {
  const byChance = async (plan: Plan): Promise<string | undefined> =>
    plan.seed % 3 === plan.actions.length % 3 || plan.actions.length === PLAN.actions.length ? play(plan) : undefined;
  const { plan } = await shrink(PLAN, "S1: 20 objects are lost", { play: byChance });
  t.equal(plan.actions.length, 3);
  t.match(await byChance(plan), /^S1: /);
});

await tap.test(
  "shrink() finds the same whatever the number of workers is, and keeps to its number of plays",
  async (t) => {
    for (const maxPlays of [40, 600]) {
      let played = 0;
      const counted = (plan: Plan): Promise<string | undefined> => {
        played++;
        return play(plan);
      };
      const alone = await shrink(PLAN, "S1: x", { play: counted, maxPlays });
      t.ok(played <= maxPlays);
      t.equal(played, alone.plays);
      t.same(await shrink(PLAN, "S1: x", { play, maxPlays, atOnce: 4 }), alone);
    }
  },
);

await tap.test("shrink() returns the plan as it is where nothing can be left out", async (t) => {
  const whole = JSON.stringify(PLAN);
  const { plan } = await shrink(PLAN, "S1: x", {
    play: async (plan) => (JSON.stringify(plan) === whole ? "S1: x" : undefined),
  });
  t.same(plan, PLAN);
});
