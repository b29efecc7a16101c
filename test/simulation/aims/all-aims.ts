import type { Random } from "../../chaos/random.ts";
import type { Limits } from "../actions/action-sort.ts";
import { hasCrd, kindOf, runsOf, serverOf } from "../actions/choices.ts";
import { actionSort } from "../actions/all-actions.ts";
import { backupAgeOf } from "../actions/etcd-actions.ts";
import type { Action } from "../plan.ts";
import { oneIn, oneOf, spread } from "../world/random-choices.ts";
import { GROUP } from "../world/kinds.ts";
import type { RequestMoment } from "../world/request-triggers.ts";
import { CERTIFICATE_AIMS } from "./certificate-aims.ts";
import { CONTROLLER_AIMS } from "./controller-aims.ts";
import { after, type Aim, anyMoment, comesBack, held, lateMoment } from "./aim.ts";

/** The storage version goes back to the old one, objects are written in it, and it is as it was again. */
function thereAndBack(random: Random, limits: Limits, on: RequestMoment, fromMs: number): readonly Action[] {
  const kind = kindOf(random, limits);
  const { createdIn = "v1" } = limits.kinds[kind] ?? {};
  const there = { do: "flip", kind, to: createdIn };
  return [
    after(limits, on, fromMs, { do: "annotate", kind, how: "unfreeze" }),
    after(limits, on, fromMs + 5, there),
    ...[100, 150, 200, 250].map((ms) =>
      after(limits, on, fromMs + ms, { do: "writeObject", kind, how: "update", object: Math.floor(random() * 8) }),
    ),
    after(limits, on, fromMs + 300, { do: "writeObject", kind, how: "create", object: 20 + Math.floor(random() * 9) }),
    after(limits, on, fromMs + 400, { do: "flip", kind, to: "v1" }),
  ];
}

/**
 * All watches are late from the middle of the wait for late writes on; the API servers may be started again before they have told of
 * what happens then.
 */
function lateWatches(random: Random, limits: Limits, on: RequestMoment): readonly Action[] {
  const byMs = Math.round(spread(random, 2_000, 25_000));
  const isRestarted = oneIn(random, 2);
  return Array.from({ length: limits.servers }, (_, server) => server).flatMap((server) => [
    after(limits, { request: "version", nth: 5 }, 0, { do: "lag", server, of: "cache", byMs }),
    ...(isRestarted ? [after(limits, on, 420, { do: "stopServer", server, how: "crash", ms: 100 })] : []),
  ]);
}

/** What happens to a CRD and its objects between two runs. */
const BETWEEN: readonly ((random: Random, limits: Limits, on: RequestMoment) => readonly Action[])[] = [
  () => [],
  (random, limits, on) => thereAndBack(random, limits, on, 100),
  (random, limits, on) => {
    const kind = kindOf(random, limits);
    return [
      after(limits, on, 100, { do: "recreateCrd", kind }),
      after(limits, on, 1_500, { do: "writeObject", kind, how: "create", object: 1, writes: 8 }),
      after(limits, on, 5_000, { do: "flip", kind, to: "v1" }),
    ];
  },
  (random, limits, on) => [
    after(limits, on, 100, { do: "editLease", kind: kindOf(random, limits), how: oneOf(random, ["forge", "replay"]) }),
  ],
  (random, limits, on) => [after(limits, on, 100, { do: "restore", ageMs: backupAgeOf(random) })],
  (_, limits, on) => [after(limits, on, 100, { do: "compact" })],
];

/** The slots of two programs that migrate. */
function twoRuns(random: Random, limits: Limits): readonly [number, number] {
  const slots = runsOf(limits);
  const program = oneOf(random, slots);
  const others = slots.filter((slot) => slot !== program);
  return [program, oneOf(random, others)];
}

/** Each aim there is. */
export const AIMS: readonly Aim[] = [
  {
    name: "there and back",
    weight: 2,
    suits: hasCrd,
    choose(random, limits) {
      const on = oneIn(random, 2) ? lateMoment(random, limits) : anyMoment(random, limits);
      const kind = kindOf(random, limits);
      const [first, ...rest] = thereAndBack(random, limits, on, 0);
      const freeze = after(limits, on, 405, { do: "annotate", kind, how: "freeze" });
      const isFrozenAgain = oneIn(random, 2);
      const actions = [first as Action, ...rest, ...(isFrozenAgain ? [freeze] : [])];
      // A watch that is behind tells of it too late.
      if (isFrozenAgain && oneIn(random, 3)) actions.push(...lateWatches(random, limits, on));
      return oneIn(random, 3) ? actions : [held(first as Action, oneOf(random, [10, 350, 600])), ...actions.slice(1)];
    },
  },
  {
    name: "crash and another run",
    weight: 3,
    choose(random, limits) {
      const on = oneIn(random, 2) ? lateMoment(random, limits) : anyMoment(random, limits);
      const between = oneOf(random, BETWEEN)(random, limits, on);
      return [...comesBack(random, limits, on, 6_000 + spread(random, 100, 30_000)), ...between];
    },
  },
  {
    name: "a user forges the checkpoint of a run that crashed",
    suits: hasCrd,
    choose(random, limits) {
      const on = { request: "checkpoint", nth: 1 + Math.floor(random() * 3) } as const;
      const forge = { do: "editLease", kind: kindOf(random, limits), how: "forge" };
      return [...comesBack(random, limits, on, spread(random, 1_000, 20_000)), after(limits, on, 200, forge)];
    },
  },
  {
    name: "crash where objects failed",
    choose(random, limits) {
      const on = { request: "checkpoint", nth: 1 + Math.floor(random() * 3) } as const;
      const kind = kindOf(random, limits);
      const ms = Math.round(spread(random, 10, 5_000));
      const deny = { ...actionSort("deny").choose(random, limits), do: "deny", kind, ms };
      const since = { request: "version", nth: 10 } as const;
      return [
        after(limits, since, 0, { ...deny, ms: 60_000 }),
        ...comesBack(random, limits, on, spread(random, 1_000, 20_000)),
      ];
    },
  },
  {
    name: "continue tokens expire",
    choose(random, limits) {
      const on = { request: "nextPage", nth: 1 + Math.floor(random() * 4) } as const;
      const write = { do: "writeObject", kind: kindOf(random, limits), how: "update", object: 1 };
      // A token of the newest state is good whatever is compacted. The request that has it is on its way meanwhile.
      return [held(after(limits, on, 0, write), 400), after(limits, on, 200, { do: "compact" })];
    },
  },
  {
    name: "an API server stops",
    choose(random, limits) {
      const how = oneOf(random, ["crash", "pause", "suspend"]);
      const ms = Math.round(spread(random, 100, 120_000));
      return [
        after(limits, anyMoment(random, limits), 0, { do: "stopServer", server: serverOf(random, limits), how, ms }),
      ];
    },
  },
  {
    name: "an API server joins or follows late",
    choose(random, limits) {
      const on = anyMoment(random, limits);
      if (oneIn(random, 2))
        return [after(limits, on, 0, { do: "joinServer", ...actionSort("joinServer").choose(random, limits) })];
      return [after(limits, on, 0, { do: "lag", ...actionSort("lag").choose(random, limits) })];
    },
  },
  {
    name: "a program stands still while another begins",
    weight: 2,
    suits: (limits) => runsOf(limits).length > 1,
    choose(random, limits) {
      const on = anyMoment(random, limits);
      const [program, another] = twoRuns(random, limits);
      const ms = Math.round(spread(random, 5_000, 150_000));
      return [
        after(limits, on, 0, { do: "standStill", program, how: oneOf(random, ["pause", "suspend"]), ms }),
        after(limits, on, spread(random, 1, 20_000), { do: "start", program: another }),
      ];
    },
  },
  {
    name: "a proxy answers one run in the place of the API servers while another begins",
    suits: (limits) => runsOf(limits).length > 1,
    choose(random, limits) {
      const on = anyMoment(random, limits);
      const [program, another] = twoRuns(random, limits);
      const ms = Math.round(spread(random, 16_000, 90_000));
      const how = oneOf(random, ["empty", "success", "echo"] as const);
      return [
        after(limits, on, 0, { do: "disturb", how, share: 1, ms, program }),
        after(limits, on, spread(random, 1, 3_000), { do: "start", program: another }),
      ];
    },
  },
  {
    name: "all machines are suspended",
    suits: ({ lifetimes }) => lifetimes === undefined,
    choose: (random, limits) => [
      after(limits, anyMoment(random, limits), 0, {
        do: "suspendAll",
        ms: Math.round(spread(random, 1_000, 2_400_000)),
      }),
    ],
  },
  {
    name: "a user edits",
    weight: 2,
    suits: hasCrd,
    choose(random, limits) {
      const written = oneOf(random, ["freeze", "unfreeze", "prune", "checkpoint"] as const);
      const isOnItsWay = oneIn(random, 2);
      const on = isOnItsWay ? { request: written, nth: 1 } : anyMoment(random, limits);
      const kind = kindOf(random, limits);
      const annotate = {
        do: "annotate",
        kind,
        how: oneOf(random, ["freeze", "unfreeze", "takeOwner", "nonsense", "label"]),
      };
      const edit = oneOf(random, [
        annotate,
        annotate,
        { do: "editLease", kind, how: oneOf(random, ["delete", "steal", "checkpoint", "forge", "replay"]) },
        { do: "recreateCrd", kind },
      ]);
      return [held(after(limits, on, 0, edit), isOnItsWay ? 10 : 0)];
    },
  },
  {
    name: "a user edits the guard",
    suits: hasCrd,
    choose(random, limits) {
      const request = oneOf(random, ["putGuard", "removeGuard"] as const);
      const on = oneIn(random, 3) ? anyMoment(random, limits) : { request, nth: 1 + Math.floor(random() * 2) };
      const damage = { ...actionSort("damagePolicy").choose(random, limits), do: "damagePolicy" };
      return [held(after(limits, on, 0, damage), oneOf(random, [0, 10, 100]))];
    },
  },
  {
    name: "etcd is restored",
    choose: (random, limits) => [
      after(limits, anyMoment(random, limits), 0, { do: "restore", ageMs: backupAgeOf(random) }),
    ],
  },
  {
    name: "a balancer answers",
    weight: 2,
    choose(random, limits) {
      const ofCrd = [{ request: "prune", nth: 1 } as const, { request: "proof", nth: 1 } as const];
      const on = oneOf(random, [
        { request: "firstPage", nth: 2 },
        { request: "nextPage", nth: 1 },
        ...(hasCrd(limits) ? ofCrd : []),
        anyMoment(random, limits),
      ] as const);
      const harm = actionSort("disturb").choose(random, limits);
      return [
        after(limits, on, 0, {
          ...harm,
          do: "disturb",
          share: oneOf(random, [0.3, 1]),
          ms: Math.round(spread(random, 2, 3_000)),
        }),
      ];
    },
  },
  {
    name: "a right is taken away while objects are written",
    suits: hasCrd,
    choose(random, limits) {
      const on = { request: "write", nth: 1 + Math.floor(random() * 12) } as const;
      const verb = oneOf(random, ["patch", "patch", "list"]);
      const right = { group: GROUP, verb };
      return [after(limits, on, 0, { do: "forbid", right, ms: Math.round(spread(random, 1_000, 120_000)) })];
    },
  },
  {
    name: "the API servers are replaced while a run is under way",
    weight: 3,
    suits: ({ kinds }) => kinds.some(({ isBuiltIn }) => isBuiltIn === true),
    choose(random, limits) {
      const everyMs = Math.round(spread(random, 10, 20_000));
      const downMs = Math.round(spread(random, 50, 5_000));
      const name = oneOf(random, ["upgrade", "rotateKey"]);
      const action = { ...actionSort(name).choose(random, limits), do: name, everyMs, writes: 12 };
      return [after(limits, anyMoment(random, limits), 0, name === "upgrade" ? { ...action, downMs } : action)];
    },
  },
  ...CONTROLLER_AIMS,
  ...CERTIFICATE_AIMS,
];
