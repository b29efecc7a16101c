import type { Random } from "../../chaos/random.ts";
import type { Limits } from "../actions/action-sort.ts";
import { hasCrd, runsOf } from "../actions/choices.ts";
import type { Action } from "../plan.ts";
import { oneOf } from "../world/random-choices.ts";
import type { RequestKind } from "../world/request-kinds.ts";
import type { RequestMoment } from "../world/request-triggers.ts";

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
  /**
   * Whether nothing else happens in its world: what it is about is promised only to a run that looks in time.
   * @default others may
   */
  readonly isAlone?: boolean;
  choose(random: Random, limits: Limits): readonly Action[];
}

/** How many requests of a kind a run sends, roughly: a later one is waited for in vain. */
const MOMENTS: readonly (readonly [RequestKind, number])[] = [
  ["takeLease", 2],
  ["freeze", 1],
  ["proof", 12],
  ["watchCrd", 2],
  ["readCrd", 20],
  ["discovery", 8],
  ["version", 60],
  ["firstPage", 2],
  ["nextPage", 4],
  ["write", 12],
  ["checkpoint", 4],
  ["prune", 1],
  ["prune", 1],
  ["unfreeze", 1],
  ["putGuard", 2],
  ["removeGuard", 2],
];

/** What a run of a built-in resource never sends. */
const OF_CRDS: ReadonlySet<RequestKind> = new Set([
  "freeze",
  "proof",
  "watchCrd",
  "readCrd",
  "prune",
  "unfreeze",
  "putGuard",
  "removeGuard",
]);

/** Some moment of a run. */
export function anyMoment(random: Random, limits: Limits): RequestMoment {
  return momentOf(random, limits, MOMENTS);
}

/** Some moment at which objects were read or written already, up to the prune. */
export function lateMoment(random: Random, limits: Limits): RequestMoment {
  return momentOf(random, limits, LATE);
}

function momentOf(random: Random, limits: Limits, moments: typeof MOMENTS): RequestMoment {
  const sent = hasCrd(limits) ? moments : moments.filter(([request]) => !OF_CRDS.has(request));
  const [request, most] = oneOf(random, sent);
  return { request, nth: 1 + Math.floor(random() * most) };
}

const LATE: readonly (readonly [RequestKind, number])[] = [
  ["nextPage", 4],
  ["write", 12],
  ["checkpoint", 4],
  ["prune", 1],
  ["prune", 1],
];

/** Something that happens some milliseconds after a moment. */
export function after(
  { startAt }: Limits,
  on: RequestMoment,
  afterMs: number,
  action: Omit<Action, "at" | "on"> & Readonly<Record<string, unknown>>,
): Action {
  return { at: startAt, on: { request: on.request, nth: on.nth, afterMs: Math.round(afterMs) }, ...action };
}

/** Has a request itself be on its way for so long. */
export function held(action: Action, holdMs: number): Action {
  return { ...action, on: { request: "prune", nth: 1, ...action.on, holdMs } };
}

/** A program that crashes at a moment and is started again. */
export function comesBack(random: Random, limits: Limits, on: RequestMoment, backMs: number): readonly Action[] {
  const program = oneOf(random, runsOf(limits));
  return [after(limits, on, 0, { do: "crash", program }), after(limits, on, backMs, { do: "start", program })];
}
