/**
 * What is to be done next.
 *
 * - `create`: issue a CA and a serving certificate; nothing that is there can be trusted
 * - `introduceCa`: issue the next CA and add it to the bundle
 * - `proveSeen`: ask every API server for the bundle, then note when
 * - `switchCa`: issue the serving certificate from the next CA, which signs from now on
 * - `noteSwitched`: note that this has been read, so that it was written before
 * - `proveServed`: ask every replica what it serves
 * - `dropOldCas`: leave only the CA that signs in the bundle
 * - `renewServing`: issue a serving certificate from the CA that signs
 * - `wait`: nothing before a moment
 * - `nothing`: nothing before a moment
 * - `clocksDisagree`: nothing, since the step that is due rests on a clock, and it is not known which of two is right
 */
export type RotationStep =
  | (DueStep & {
      /** Where two clocks disagree. @default they agree, or nothing that is in use rests on them */
      readonly clocks?: TwoClocks;
    })
  | { readonly type: "clocksDisagree"; readonly due: DueStep["type"] };

/** The same moment by two clocks, in milliseconds since the Unix epoch, one of which is wrong. */
export interface TwoClocks {
  /** By the clock that the step was planned with. */
  readonly now: number;
  readonly otherNow: number;
  /** Whether API servers accept what is served now by the other clock as well. */
  readonly isOtherInForce: boolean;
}

/** What may be due by one clock. */
export type DueStep =
  | { readonly type: "create" | "introduceCa" | "renewServing"; readonly reason: string }
  | { readonly type: "switchCa" | "dropOldCas" }
  | { readonly type: "proveSeen" | "noteSwitched" | "proveServed" }
  | { readonly type: "wait"; readonly until: number; readonly for: "API servers" | "replicas" }
  | { readonly type: "nothing"; readonly until: number };

/** What one of two clocks says. */
export interface Judgement {
  readonly step: DueStep;
  readonly now: number;
  /** API servers accept what is served now. */
  readonly isInForce: boolean;
}

/**
 * What is done where two clocks disagree: only what both have due, in whatever form, and whichever of them is right it takes away
 * nothing that is in force. By a clock that calls what is served invalid there is nothing to lose, so the other one's step is taken.
 */
export function stepByTwoClocks(server: Judgement, local: Judgement): RotationStep {
  const [first, second] = server.isInForce || !local.isInForce ? [server, local] : [local, server];
  const step = second.isInForce ? leastOf(first.step, second.step) : first.step;
  if (step !== undefined && step.type !== "nothing") {
    return { ...step, clocks: { now: first.now, otherNow: second.now, isOtherInForce: second.isInForce } };
  }
  return isHarmless(server.step) ? server.step : { type: "clocksDisagree", due: server.step.type };
}

/** Which of two is done first, while what is served is in force by both clocks: a step before another one takes nothing away. */
const LEAST_FIRST: readonly DueStep["type"][] = [
  "wait",
  "proveServed",
  "noteSwitched",
  "proveSeen",
  "dropOldCas",
  "introduceCa",
  "renewServing",
];

/** @returns `undefined` where one of them has nothing due, or it is not known that the step breaks nothing by the other clock */
function leastOf(one: DueStep, other: DueStep): DueStep | undefined {
  const [rank, otherRank] = [LEAST_FIRST.indexOf(one.type), LEAST_FIRST.indexOf(other.type)];
  if (one.type === other.type || (rank >= 0 && rank < otherRank)) {
    return one;
  }
  return otherRank >= 0 && otherRank < rank ? other : undefined;
}

/** Whether a step changes nothing that is in use. */
function isHarmless({ type }: DueStep): boolean {
  return type === "wait" || type === "nothing" || type === "proveServed";
}
