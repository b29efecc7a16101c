import type { Random } from "../../chaos/random.ts";
import { HEARTBEAT_LIMIT_MS } from "../../../src/api/migration.ts";
import { actionSort } from "../actions/all-actions.ts";
import type { Limits } from "../actions/action-sort.ts";
import { hasController, hasCrd, kindOf, programOf, runsOf } from "../actions/choices.ts";
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

/** Each replica of the controller is gone from `fromMs` after a moment on, for `ms` milliseconds. */
function away(
  limits: Limits,
  { on, fromMs, ms }: { readonly on: RequestMoment; readonly fromMs: number; readonly ms: number },
): readonly Action[] {
  const replicas = runsOf(limits).filter((slot) => limits.programs[slot]?.run === "controller");
  return replicas.flatMap((program) => [
    after(limits, on, fromMs, { do: "crash", program }),
    after(limits, on, fromMs + ms, { do: "start", program }),
  ]);
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
    weight: 3,
    suits: hasController,
    choose(random, limits) {
      const isForAll = !oneIn(random, 3);
      const on = isForAll
        ? ({ request: "newMigration", nth: 1 + Math.floor(random() * 3) } as const)
        : leaderMoment(random);
      const holdMs = oneOf(random, [0, 10, 100]);
      // The migration that is created is of any of them, and finds nothing to do.
      const kinds = isForAll ? limits.kinds.keys() : [kindOf(random, limits)];
      return Array.from(kinds, (kind) =>
        held(after(limits, on, 0, { do: "foreignPrune", kind, isCareful: false }), holdMs),
      );
    },
  },
  {
    name: "a CRD is created again, or its storage version goes there and back, while no replica looks",
    weight: 5,
    suits: (limits) => hasController(limits) && hasCrd(limits),
    choose(random, limits) {
      // Mostly soon after the StorageState says that everything is migrated.
      const isAnywhere = oneIn(random, 4);
      const on = isAnywhere ? leaderMoment(random) : ({ request: "unfreeze", nth: oneIn(random, 4) ? 2 : 1 } as const);
      const fromMs = isAnywhere ? 0 : spread(random, 500, 20_000);
      const kind = kindOf(random, limits);
      const { createdIn = "v1" } = limits.kinds[kind] ?? {};
      const change = oneIn(random, 3) ? { do: "recreateCrd", kind } : { do: "flip", kind, to: createdIn };
      const prune = after(limits, on, fromMs + 5_500, { do: "foreignPrune", kind, isCareful: false });
      return [
        ...away(limits, { on, fromMs, ms: 6_000 + spread(random, 100, 30_000) }),
        after(limits, on, fromMs + 100, change),
        after(limits, on, fromMs + 1_500, { do: "writeObject", kind, how: "create", object: 1, writes: 8 }),
        after(limits, on, fromMs + 5_000, { do: "flip", kind, to: "v1" }),
        ...(oneIn(random, 2) ? [prune] : []),
      ];
    },
  },
  {
    name: "the API servers are of another release for a while, and no replica looks for longer than a StorageState is believed",
    weight: 8,
    suits: (limits) => hasController(limits) && limits.kinds.some(({ isBuiltIn }) => isBuiltIn === true),
    choose(random, limits) {
      const on = { request: "state", nth: 3 + Math.floor(random() * 8) } as const;
      // By then everything is migrated, mostly.
      const fromMs = spread(random, 30_000, 240_000);
      const timing = { everyMs: Math.round(spread(random, 3_000, 20_000)), downMs: 100 };
      const ms = (timing.everyMs + timing.downMs) * limits.servers * 2;
      return [
        ...away(limits, { on, fromMs, ms: HEARTBEAT_LIMIT_MS + spread(random, 1_000, 300_000) }),
        after(limits, on, fromMs + 100, { do: "upgrade", ...timing, end: "undone", ms, writes: 12 }),
      ];
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
