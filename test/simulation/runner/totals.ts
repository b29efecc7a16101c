import { violationKind } from "../shrink/violation-kind.ts";
import { durationText } from "./progress.ts";

/** A seed that broke something. */
export interface BrokenSeed {
  readonly seed: number;
  readonly violation: string;
}

/** What many plays came to. Broken seeds beyond {@link MAX_KEPT} are counted and not kept. */
export interface Totals {
  seconds: number;
  requests: number;
  events: number;
  /** Simulated milliseconds. */
  elapsedMs: number;
  brokenCount: number;
  broken: BrokenSeed[];
}

const MAX_KEPT = 1_000;
const NUMBER = new Intl.NumberFormat("en-US");

export function emptyTotals(): Totals {
  return { seconds: 0, requests: 0, events: 0, elapsedMs: 0, brokenCount: 0, broken: [] };
}

export function addBroken(totals: Totals, broken: BrokenSeed): void {
  totals.brokenCount++;
  if (totals.broken.length < MAX_KEPT) totals.broken.push(broken);
}

/** The lowest broken seed of each kind of violation, and how many there are of the kind. */
export function brokenKinds(totals: Totals): readonly (BrokenSeed & { readonly count: number })[] {
  const kinds = Map.groupBy(
    totals.broken.toSorted((a, b) => a.seed - b.seed),
    ({ violation }) => violationKind(violation),
  );
  return [...kinds.values()].flatMap(([first, ...others]) =>
    first === undefined ? [] : [{ ...first, count: others.length + 1 }],
  );
}

/** One line: how many, how fast, and what was played. */
export function totalsText(done: number, totals: Totals): string {
  const { seconds, brokenCount, requests, events, elapsedMs } = totals;
  const pace = seconds > 0 ? done / seconds : 0;
  const figures = [
    `${NUMBER.format(brokenCount)} broken`,
    `${pace.toFixed(1)} schedules/s`,
    `${NUMBER.format(Math.round(elapsedMs / 86_400_000))} days of cluster life`,
    `${NUMBER.format(requests)} requests`,
    `${NUMBER.format(events)} events`,
  ];
  return `${NUMBER.format(done)} seeds in ${durationText(seconds)}: ${figures.join(", ")}`;
}
