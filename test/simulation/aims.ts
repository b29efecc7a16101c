import type { Random } from "../chaos/random.ts";
import { hasController, hasCrd, kindOf, type Limits, programOf, serverOf } from "./actions/action.ts";
import { actionSort } from "./actions/all.ts";
import type { Action } from "./plan.ts";
import { oneIn, oneOf, spread } from "./world/random.ts";
import { BAD_ANSWERS } from "./world/webhooks.ts";
import type { RequestKind, RequestMoment } from "./world/requests.ts";

/**
 * Several actions that belong together, close to a moment of a run that matters: a hole is mostly one particular order of a few
 * things, which actions at random times meet once in a million times.
 */
export interface Aim {
  readonly name: string;
  /** How likely it is beside the others. @default 1 */
  readonly weight?: number;
  /** Whether worlds of this sort have it at all. @default all have */
  readonly suits?: (limits: Limits) => boolean;
  choose(random: Random, limits: Limits): readonly Action[];
}

type Moments = readonly (readonly [RequestKind, number])[];
/** What happens, beside when. */
type Deed = Omit<Action, "at" | "on"> & Readonly<Record<string, unknown>>;

/** How many requests of a kind a run sends, roughly: a later one is waited for in vain. */
const OF_RUNS: Moments = [
  ["takeLease", 2],
  ["discovery", 8],
  ["ask", 12],
  ["firstPage", 2],
  ["nextPage", 4],
  ["write", 12],
  ["checkpoint", 4],
];
/** What a run of a built-in resource never sends. */
const OF_CRDS: Moments = [
  ["freeze", 1],
  ["proof", 12],
  ["watchCrd", 2],
  ["readCrd", 20],
  ["prune", 1],
  ["prune", 1],
  ["unfreeze", 1],
  ["putGuard", 2],
  ["removeGuard", 2],
];
/** When objects were read or written already, up to the prune. */
const LATE: Moments = [
  ["nextPage", 4],
  ["write", 12],
  ["checkpoint", 4],
];
const OF_LEADERS: Moments = [
  ["lead", 60],
  ["claim", 4],
  ["succeed", 4],
  ["succeed", 4],
  ["newMigration", 4],
  ["state", 10],
  ["state", 10],
  ["prune", 1],
];

function momentIn(random: Random, moments: Moments): RequestMoment {
  const [request, most] = oneOf(random, moments);
  return { request, nth: 1 + Math.floor(random() * most) };
}

/** Some moment of a run. */
export function anyMoment(random: Random, limits: Limits): RequestMoment {
  return momentIn(random, hasCrd(limits) ? [...OF_RUNS, ...OF_CRDS] : OF_RUNS);
}

function lateMoment(random: Random, limits: Limits): RequestMoment {
  return momentIn(random, hasCrd(limits) ? [...LATE, ["prune", 1], ["prune", 1]] : LATE);
}

function nth(random: Random, request: RequestKind, most: number): RequestMoment {
  return { request, nth: 1 + Math.floor(random() * most) };
}

/** Something that happens some milliseconds after a moment. */
export function after({ startAt }: Limits, on: RequestMoment, afterMs: number, deed: Deed): Action {
  return { at: startAt, on: { request: on.request, nth: on.nth, afterMs: Math.round(afterMs) }, ...deed };
}

/** Something that happens at a time. */
function at(ms: number, deed: Deed): Action {
  return { at: Math.round(ms), ...deed };
}

/** Has a request itself be on its way for so long. */
function held(action: Action, holdMs: number): Action {
  return { ...action, on: { request: "prune", nth: 1, ...action.on, holdMs } };
}

/** One of a sort as it is chosen at random, with some of its parameters. */
function chosen(random: Random, limits: Limits, name: string, changes: object = {}): Deed {
  return { ...actionSort(name).choose(random, limits), do: name, ...changes };
}

/** A program that crashes at a moment and is started again. */
function comesBack(random: Random, limits: Limits, on: RequestMoment, backMs: number): readonly Action[] {
  const program = programOf(random, limits);
  return [after(limits, on, 0, { do: "crash", program }), after(limits, on, backMs, { do: "start", program })];
}

/** The storage version goes back to the old one, objects are written in it, and it is as it was again. */
function thereAndBack(random: Random, limits: Limits, on: RequestMoment, fromMs: number): readonly Action[] {
  const kind = kindOf(random, limits);
  const { createdIn = "v1" } = limits.kinds[kind] ?? {};
  const update = { do: "writeObject", kind, how: "update" };
  return [
    after(limits, on, fromMs, { do: "annotate", kind, how: "unfreeze" }),
    after(limits, on, fromMs + 5, { do: "flip", kind, to: createdIn }),
    ...[100, 150, 200, 250].map((ms) =>
      after(limits, on, fromMs + ms, { ...update, object: Math.floor(random() * 8) }),
    ),
    after(limits, on, fromMs + 300, { ...update, how: "create", object: 20 + Math.floor(random() * 9) }),
    after(limits, on, fromMs + 400, { do: "flip", kind, to: "v1" }),
  ];
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
  (_, limits, on) => [after(limits, on, 100, { do: "compact" })],
];

const hasTwo = ({ programs }: Limits): boolean => programs.length > 1;
const hasBuiltIn = ({ kinds }: Limits): boolean => kinds.some(({ isBuiltIn }) => isBuiltIn === true);

/** What is aimed at runs, of commands and of controllers. */
const OF_ALL: readonly Aim[] = [
  {
    name: "there and back",
    weight: 3,
    suits: hasCrd,
    choose(random, limits) {
      const on = oneIn(random, 2) ? lateMoment(random, limits) : anyMoment(random, limits);
      const [first, ...rest] = thereAndBack(random, limits, on, 0);
      const freeze = after(limits, on, 405, { do: "annotate", kind: 0, how: "freeze" });
      const late = Array.from({ length: limits.servers }, (_, server) =>
        // A watch that is behind tells of it too late.
        after(limits, { request: "ask", nth: 5 }, 0, { do: "lag", server, of: "cache", byMs: 20_000 }),
      );
      return [
        held(first as Action, oneOf(random, [0, 10, 350, 600])),
        ...rest,
        ...(oneIn(random, 3) ? [freeze] : []),
        ...(oneIn(random, 3) ? late : []),
      ];
    },
  },
  {
    name: "there and back while the prune is on its way",
    weight: 2,
    suits: hasCrd,
    choose(random, limits) {
      const [first, ...rest] = thereAndBack(random, limits, { request: "prune", nth: 1 }, 0);
      return [held(first as Action, oneOf(random, [350, 450, 600])), ...rest];
    },
  },
  {
    name: "a run crashes or is told to end, and another one goes on",
    weight: 3,
    choose(random, limits) {
      const on = oneIn(random, 2) ? lateMoment(random, limits) : anyMoment(random, limits);
      const between = oneOf(random, BETWEEN)(random, limits, on);
      const backMs = Math.round(6_000 + spread(random, 100, 30_000));
      if (oneIn(random, 2)) return [...comesBack(random, limits, on, backMs), ...between];
      return [after(limits, on, 0, { do: "replace", program: programOf(random, limits), ms: backMs }), ...between];
    },
  },
  {
    name: "objects are denied while they are written",
    weight: 2,
    choose: (random, limits) => [
      after(
        limits,
        { request: "takeLease", nth: 1 },
        0,
        chosen(random, limits, "harm", { what: "objects", kind: 0, how: "deny", every: 2, ms: 240_000 }),
      ),
    ],
  },
  {
    name: "continue tokens expire",
    choose(random, limits) {
      const on = nth(random, "nextPage", 4);
      const write = { do: "writeObject", kind: kindOf(random, limits), how: "update", object: 1 };
      // A token of the newest state is good whatever is compacted. The request that has it is on its way meanwhile.
      return [held(after(limits, on, 0, write), 400), after(limits, on, 200, { do: "compact" })];
    },
  },
  {
    name: "an API server stops, joins, leaves or follows late",
    weight: 3,
    choose(random, limits) {
      const name = oneOf(random, ["stopServer", "joinServer", "leave", "lag"]);
      return [after(limits, anyMoment(random, limits), 0, chosen(random, limits, name))];
    },
  },
  {
    name: "a program stands still while another begins",
    weight: 2,
    suits: hasTwo,
    choose(random, limits) {
      const on = anyMoment(random, limits);
      const program = programOf(random, limits);
      const how = oneOf(random, ["pause", "suspend"]);
      const ms = Math.round(spread(random, 5_000, 150_000));
      const another = (program + 1) % limits.programs.length;
      return [
        after(limits, on, 0, { do: "standStill", program, how, ms }),
        after(limits, on, spread(random, 1, 20_000), { do: "start", program: another }),
      ];
    },
  },
  {
    name: "another run begins",
    suits: hasTwo,
    choose: (random, limits) => [
      after(limits, anyMoment(random, limits), spread(random, 1, 5_000), {
        do: "start",
        program: limits.programs.length - 1,
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
      const name = oneOf(random, ["annotate", "annotate", "recreateCrd", "foreignPrune", "editVersions"]);
      return [held(after(limits, on, 0, chosen(random, limits, name)), isOnItsWay ? 10 : 0)];
    },
  },
  {
    name: "a user edits the guard",
    suits: hasCrd,
    choose(random, limits) {
      const request = oneOf(random, ["putGuard", "removeGuard"] as const);
      const on = oneIn(random, 3) ? anyMoment(random, limits) : nth(random, request, 2);
      return [held(after(limits, on, 0, chosen(random, limits, "damagePolicy")), oneOf(random, [0, 10, 100]))];
    },
  },
  {
    name: "the network fails",
    weight: 2,
    choose(random, limits) {
      const ms = Math.round(spread(random, 2, 3_000));
      const harm = chosen(random, limits, "disturb", { share: oneOf(random, [0.3, 1]), ms });
      return [after(limits, anyMoment(random, limits), 0, harm)];
    },
  },
  {
    name: "a webhook fails for longer than a freeze is kept",
    suits: hasCrd,
    choose(random, limits) {
      const ms = Math.round(spread(random, 700_000, 1_200_000));
      const how = oneOf(random, Object.keys(BAD_ANSWERS));
      const harm = chosen(random, limits, "harm", { what: "objects", how, every: 1, isIgnored: false, ms });
      return oneIn(random, 3) ? [after(limits, nth(random, "write", 6), 0, harm)] : [];
    },
  },
  {
    name: "the API servers are replaced while a run is under way",
    weight: 4,
    suits: hasBuiltIn,
    choose(random, limits) {
      const everyMs = Math.round(spread(random, 10, 20_000));
      const name = oneOf(random, ["upgrade", "rotateKey"]);
      return [after(limits, anyMoment(random, limits), 0, chosen(random, limits, name, { everyMs, writes: 12 }))];
    },
  },
];

/** Each replica of the controller is gone from `fromMs` after a moment on, for `ms` milliseconds. */
function away(limits: Limits, on: RequestMoment, fromMs: number, ms: number): readonly Action[] {
  return limits.programs.flatMap((_, program) => [
    after(limits, on, fromMs, { do: "crash", program }),
    after(limits, on, fromMs + ms, { do: "start", program }),
  ]);
}

const OF_CONTROLLERS: readonly Aim[] = [
  {
    name: "the leader ends, or stands still",
    weight: 4,
    choose(random, limits) {
      const on = oneIn(random, 3) ? anyMoment(random, limits) : momentIn(random, OF_LEADERS);
      const backMs = Math.round(spread(random, 1_000, 60_000));
      if (oneIn(random, 3)) return comesBack(random, limits, on, backMs);
      const program = programOf(random, limits);
      if (oneIn(random, 2)) return [after(limits, on, 0, { do: "replace", program, ms: backMs })];
      const [how, ms] = [oneOf(random, ["pause", "suspend"]), Math.round(spread(random, 5_000, 150_000))];
      return [after(limits, on, 0, { do: "standStill", program, how, ms })];
    },
  },
  {
    name: "the storage version changes while the leader writes",
    weight: 3,
    suits: hasCrd,
    choose(random, limits) {
      const on = momentIn(random, OF_LEADERS);
      const kind = kindOf(random, limits);
      const { createdIn = "v1" } = limits.kinds[kind] ?? {};
      const there = held(
        after(limits, on, 0, { do: "flip", kind, to: createdIn, writes: 10 }),
        oneOf(random, [0, 10, 300, 5_000]),
      );
      const back = after(limits, on, spread(random, 100, 20_000), { do: "flip", kind, to: "v1", writes: 10 });
      return oneIn(random, 2) ? [there] : [there, back];
    },
  },
  {
    name: "users edit while the leader writes",
    weight: 3,
    choose(random, limits) {
      const on = momentIn(random, OF_LEADERS);
      const names = ["deleteMigration", "deleteState", "createMigrations", "suspendMigration"];
      const name = oneOf(random, hasCrd(limits) ? [...names, "recreateCrd", "foreignPrune"] : names);
      return [held(after(limits, on, 0, chosen(random, limits, name)), oneOf(random, [0, 10]))];
    },
  },
  {
    name: "a CRD is created again, or its storage version goes there and back, while no replica looks",
    weight: 3,
    suits: hasCrd,
    choose(random, limits) {
      // Mostly soon after the StorageState says that everything is migrated.
      const isAnywhere = oneIn(random, 4);
      const on = isAnywhere ? momentIn(random, OF_LEADERS) : ({ request: "unfreeze", nth: 1 } as const);
      const fromMs = isAnywhere ? 0 : spread(random, 500, 20_000);
      const kind = kindOf(random, limits);
      const { createdIn = "v1" } = limits.kinds[kind] ?? {};
      const change = oneIn(random, 3) ? { do: "recreateCrd", kind } : { do: "flip", kind, to: createdIn };
      return [
        ...away(limits, on, fromMs, 6_000 + spread(random, 100, 30_000)),
        after(limits, on, fromMs + 100, change),
        after(limits, on, fromMs + 1_500, { do: "writeObject", kind, how: "create", object: 1, writes: 8 }),
        after(limits, on, fromMs + 5_000, { do: "flip", kind, to: "v1" }),
      ];
    },
  },
];

/** Late writes are still under way when a program starts that early. */
const SOON_MS = 12_000;
/** What has begun before the storage version changes, in milliseconds since the world was set up. */
const BEFORE = { slow: 1_000, stop: 1_900 };

/**
 * An API server has writes of the old version under way when the storage version changes. By then it is as quick as others, so that
 * the change itself is not late.
 */
function writesUnderWay(random: Random, server: number): Action {
  const holdMs = Math.round(spread(random, 20_000, 60_000));
  return at(BEFORE.slow, { do: "slow", server, ms: 950, holdMs, writes: 24 });
}

const startsSoon = ({ startAt }: Limits): boolean => startAt <= SOON_MS;
const startsSoonBesideOthers = (limits: Limits): boolean => startsSoon(limits) && limits.servers > 1;

/** What is aimed at the change of the storage version of a CRD, before any program starts. */
export const BEGINNINGS: readonly Aim[] = [
  {
    name: "writes of the old version are under way, and the clock of an API server is wrong",
    weight: 3,
    suits: startsSoon,
    choose(random, limits) {
      const byMs = Math.round(spread(random, 60_000, 600_000)) * (oneIn(random, 2) ? 1 : -1);
      const jump = at(500, { do: "jumpServer", server: serverOf(random, limits), byMs });
      return [writesUnderWay(random, serverOf(random, limits)), ...(oneIn(random, 2) ? [jump] : [])];
    },
  },
  {
    name: "an API server is suspended while late writes are waited for",
    weight: 2,
    suits: startsSoon,
    choose(random, limits) {
      const server = serverOf(random, limits);
      const stop = { do: "stopServer", server, how: "suspend" };
      const longMs = Math.round(spread(random, 8_000, 60_000));
      const long = at(limits.startAt + spread(random, 1_000, 40_000), { ...stop, ms: longMs });
      // What hangs and goes on between two questions goes unnoticed. The wait has room for two of these.
      const short = [2, 4].map((nth) =>
        after(limits, { request: "ask", nth }, 50, { ...stop, ms: Math.round(spread(random, 5_000, 9_800)) }),
      );
      return [writesUnderWay(random, server), ...(oneIn(random, 2) ? [long] : short)];
    },
  },
  {
    name: "an API server is behind the change for longer than late writes are waited for",
    weight: 4,
    suits: startsSoonBesideOthers,
    choose(random, limits) {
      const byMs = Math.round(spread(random, 110_000, 250_000));
      const lag = at(BEFORE.stop, { do: "lag", server: limits.servers - 1, of: "crds", byMs });
      const update = { do: "writeObject", kind: 0, how: "update", object: 1, writes: 8 };
      return [lag, ...[85_000, 91_000, 94_000, 100_000].map((ms) => at(limits.startAt + ms, update))];
    },
  },
  {
    name: "the storage version went there and back, and an API server sees that later than late writes are waited for",
    weight: 4,
    suits: startsSoonBesideOthers,
    choose(random, limits) {
      // The run talks to the first one, or to any of them: where that is behind, it cannot begin.
      const server = oneIn(random, 4) ? serverOf(random, limits) : limits.servers - 1;
      const byMs = Math.round(spread(random, 93_000, 155_000));
      const there = limits.kinds[0]?.createdIn ?? "";
      const update = { do: "writeObject", kind: 0, how: "update", object: 1, writes: 8 };
      return [
        at(500, { do: "flip", kind: 0, to: "v1" }),
        at(1_000, { do: "lag", server, of: "crds", byMs }),
        at(1_100, { do: "flip", kind: 0, to: there }),
        at(BEFORE.stop, { do: "flip", kind: 0, to: "v1" }),
        ...[50, 300, 600].map((ms) => at(1_100 + byMs + ms, update)),
      ];
    },
  },
  {
    name: "an API server hangs from before the change until after a run",
    weight: 4,
    suits: ({ servers, startAt }) => servers > 1 && startAt < 400_000,
    choose(random, limits) {
      const hung = serverOf(random, limits);
      const ms = Math.round(limits.startAt + spread(random, 105_000, 250_000));
      const how = oneOf(random, ["pause", "suspend"]);
      return [writesUnderWay(random, hung), at(BEFORE.stop, { do: "stopServer", server: hung, how, ms })];
    },
  },
  {
    name: "an API server that is behind ends before a run asks it, or while it settles",
    weight: 2,
    suits: startsSoonBesideOthers,
    choose(random, limits) {
      const server = limits.servers - 1;
      const on = oneOf(random, [
        { request: "takeLease", nth: 1 },
        { request: "freeze", nth: 1 },
        nth(random, "ask", 10),
      ] as const);
      const update = { do: "writeObject", kind: 0, how: "update", object: 1, writes: 20 };
      return [
        at(BEFORE.stop, { do: "lag", server, of: "crds", byMs: 400_000 }),
        at(Math.max(BEFORE.stop, limits.startAt - 1_000), update),
        after(limits, on, 0, { do: "leave", server, holdMs: 60_000 }),
      ];
    },
  },
  {
    name: "the guard is in force late, and the network may fail",
    weight: 3,
    suits: startsSoonBesideOthers,
    choose(random, limits) {
      const isFirstInTime = oneIn(random, 2);
      const late = Array.from({ length: limits.servers }, (_, server) => server).filter(
        (server) => server > 0 || !isFirstInTime,
      );
      const disturb = chosen(random, limits, "disturb", { share: 0.5, ms: Math.round(spread(random, 100, 3_000)) });
      // Most are late for longer than late writes are waited for under the freeze.
      const byMs = oneOf(random, [60_000, 300_000, 300_000]);
      const flip = { do: "flip", kind: 0, to: limits.kinds[0]?.createdIn ?? "v1" };
      return [
        ...late.map((server) => at(BEFORE.stop, { do: "lag", server, of: "admission", byMs })),
        ...(oneIn(random, 2) ? [after(limits, { request: "freeze", nth: 1 }, 0, disturb)] : []),
        // One that comes before all API servers have shown the proof ends the run.
        ...(oneIn(random, 3)
          ? [oneOf(random, [50, 400]), 1_000, 5_000, 15_000, 30_000].map((ms) =>
              after(limits, { request: "proof", nth: 1 }, ms, flip),
            )
          : [10, 20, 60, 100].map((ms) => after(limits, nth(random, "write", 4), ms, flip))),
      ];
    },
  },
];

/** Whether a world has an aim: one of commands, of controllers, or of how a command begins. */
export function isFor(aim: Aim, limits: Limits): boolean {
  const isOfCommands = !hasController(limits) && hasCrd(limits) && limits.programs[0]?.run === "migrate";
  if (OF_CONTROLLERS.includes(aim) && !hasController(limits)) return false;
  if (BEGINNINGS.includes(aim) && !isOfCommands) return false;
  return aim.suits?.(limits) ?? true;
}

/** All but {@link BEGINNINGS}. */
export const AIMS: readonly Aim[] = [...OF_ALL, ...OF_CONTROLLERS];

/** @throws {RangeError} where there is none of that name */
export function aimNamed(name: string): Aim {
  const aim = [...AIMS, ...BEGINNINGS].find((one) => one.name === name);
  if (aim === undefined) throw new RangeError(`there is no aim "${name}"`);
  return aim;
}
