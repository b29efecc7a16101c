import type { Random } from "../../chaos/random.ts";
import { actionSort } from "../actions/all-actions.ts";
import type { Limits } from "../actions/action-sort.ts";
import { hasController, kindOf, programOf, runsOf } from "../actions/choices.ts";
import type { Action } from "../plan.ts";
import { oneIn, oneOf, spread } from "../world/random-choices.ts";
import type { RequestKind } from "../world/request-kinds.ts";
import type { RequestMoment } from "../world/request-triggers.ts";
import { after, type Aim, anyMoment, comesBack, held } from "./aim.ts";

/** How many requests of a kind a leader sends, roughly. */
const MOMENTS: readonly (readonly [RequestKind, number])[] = [
  ["lead", 60],
  ["claim", 4],
  ["succeed", 4],
  ["succeed", 4],
  ["newMigration", 4],
  ["state", 10],
  ["state", 10],
  ["prune", 1],
];

function leaderMoment(random: Random): RequestMoment {
  const [request, most] = oneOf(random, MOMENTS);
  return { request, nth: 1 + Math.floor(random() * most) };
}

/** The storage version changes, and changes back perhaps. */
function flips(random: Random, limits: Limits, on: RequestMoment): readonly Action[] {
  const kind = kindOf(random, limits);
  const { createdIn = "v1" } = limits.kinds[kind] ?? {};
  const there = after(limits, on, 0, { do: "flip", kind, to: createdIn, writes: 10 });
  return oneIn(random, 2)
    ? [there]
    : [there, after(limits, on, spread(random, 100, 20_000), { do: "flip", kind, to: "v1", writes: 10 })];
}

/** What is aimed at replicas of the controller. */
export const CONTROLLER_AIMS: readonly Aim[] = [
  {
    name: "the leader ends",
    weight: 2,
    suits: hasController,
    choose(random, limits) {
      const on = oneIn(random, 3) ? anyMoment(random, limits) : leaderMoment(random);
      const backMs = spread(random, 1_000, 60_000);
      if (oneIn(random, 2)) return comesBack(random, limits, on, backMs);
      return [after(limits, on, 0, { do: "replace", program: programOf(random, limits), ms: Math.round(backMs) })];
    },
  },
  {
    name: "the leader stands still",
    weight: 2,
    suits: hasController,
    choose(random, limits) {
      const on = oneIn(random, 3) ? anyMoment(random, limits) : leaderMoment(random);
      const how = oneOf(random, ["pause", "suspend"]);
      const ms = Math.round(spread(random, 5_000, 150_000));
      return [after(limits, on, 0, { do: "standStill", program: programOf(random, limits), how, ms })];
    },
  },
  {
    name: "the storage version changes while the leader writes",
    weight: 3,
    suits: hasController,
    choose(random, limits) {
      const on = leaderMoment(random);
      const [first, ...rest] = flips(random, limits, on);
      return [held(first as Action, oneOf(random, [0, 10, 300, 5_000])), ...rest];
    },
  },
  {
    name: "users edit while the leader writes",
    weight: 3,
    suits: hasController,
    choose(random, limits) {
      const on = leaderMoment(random);
      const name = oneOf(random, [
        "editMigration",
        "editStorageState",
        "editLeader",
        "recreateCrd",
        "createMigrations",
      ]);
      return [
        held(after(limits, on, 0, { do: name, ...actionSort(name).choose(random, limits) }), oneOf(random, [0, 10])),
      ];
    },
  },
  {
    name: "objects are denied while the leader rewrites",
    weight: 2,
    suits: hasController,
    choose(random, limits) {
      const deny = { ...actionSort("deny").choose(random, limits), do: "deny", kind: kindOf(random, limits) };
      const on = { request: "claim", nth: 1 + Math.floor(random() * 4) } as const;
      return [after(limits, on, 0, { ...deny, ms: Math.round(spread(random, 60_000, 240_000)) })];
    },
  },
  {
    name: "another client prunes while the leader writes",
    weight: 2,
    suits: hasController,
    choose(random, limits) {
      const on = oneOf(random, [
        leaderMoment(random),
        { request: "newMigration", nth: 1 + Math.floor(random() * 4) },
      ] as const);
      const prune = { do: "foreignPrune", kind: kindOf(random, limits), isCareful: false };
      return [held(after(limits, on, 0, prune), oneOf(random, [0, 10, 100]))];
    },
  },
  {
    name: "a run is killed between its freeze and its policy",
    weight: 3,
    suits: (limits) => hasController(limits) && limits.programs.some(({ run }) => run === "migrate"),
    choose(random, limits) {
      const on = { request: "removeGuard", nth: 1 + Math.floor(random() * 4) } as const;
      const slots = runsOf(limits).filter((slot) => oneIn(random, 4) || limits.programs[slot]?.run === "migrate");
      return slots.map((program) => after(limits, on, 0, { do: "crash", program }));
    },
  },
  {
    name: "etcd is restored while the leader writes",
    weight: 3,
    suits: hasController,
    choose(random, limits) {
      const restore = { do: "restore", ageMs: Math.round(spread(random, 5_000, 120_000)) };
      if (oneIn(random, 2)) return [after(limits, leaderMoment(random), 0, restore)];
      // The run has done all but that, and the leader looks at the migration meanwhile.
      const request = oneIn(random, 4) ? "succeed" : "removeGuard";
      const on = { request, nth: oneIn(random, 4) ? 2 : 1 } as const;
      return [held(after(limits, on, 0, restore), 5_000)];
    },
  },
];
