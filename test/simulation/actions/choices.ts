import type { Random } from "../../chaos/random.ts";
import { oneIn, spread } from "../world/random-choices.ts";
import type { Limits } from "./action-sort.ts";

/** How long disturbances go on after the programs have started, at the most and roughly. */
const DISTURBED_MS = 600_000;

/** Before and after the programs start, soon as often as later: most of a run is its first minutes. */
export function momentOf(random: Random, { startAt }: Limits): number {
  return Math.round(oneIn(random, 4) ? spread(random, 10, startAt) : startAt + spread(random, 10, DISTURBED_MS / 3));
}

/** Milliseconds. */
export function lastingOf(random: Random): number {
  return Math.round(spread(random, 50, DISTURBED_MS / 3));
}

/** One in so many obstacles lasts for longer than a run keeps its freeze or waits at all. */
const LONG_IN = 10;
/** So long these last at least, and how much longer at the most, in milliseconds. */
const LONG_MS = [300_000, 900_000] as const;

/** Milliseconds for which an obstacle lasts that a run has to wait for: a webhook, a balancer, a missing right, a quota. */
export function obstacleLastingOf(random: Random): number {
  const ms = lastingOf(random);
  // Without another draw, all else that a seed stands for is as it is without long ones.
  return ms % LONG_IN === 0 ? LONG_MS[0] + ((ms * 7_919) % LONG_MS[1]) : ms;
}

/** Milliseconds that a clock jumps by, forward or back. */
export function jumpOf(random: Random): number {
  return Math.round(spread(random, 100, 7_200_000)) * (oneIn(random, 2) ? 1 : -1);
}

/** An index of `plan.kinds`. */
export function kindOf(random: Random, { kinds }: Limits): number {
  return Math.floor(random() * kinds.length);
}

/** Whether a world has a CRD to edit. */
export function hasCrd({ kinds }: Pick<Limits, "kinds">): boolean {
  return kinds.some(({ isBuiltIn }) => isBuiltIn !== true);
}

/** Whether a world has a controller. */
export function hasController({ programs }: Pick<Limits, "programs">): boolean {
  return programs.some(({ run }) => run === "controller");
}

/** Whether the controllers of a world neither freeze nor prune. */
export function areUnmanaged({ programs }: Pick<Limits, "programs">): boolean {
  return programs.some(({ unmanaged }) => unmanaged === true);
}

/** Whether something in a world looks after migrations: controllers, or `ksvm init`. */
export function hasMigrations({ programs }: Pick<Limits, "programs">): boolean {
  return programs.some(({ run }) => run === "controller" || run === "init");
}

/** Whether something in a world re-encrypts. */
export function hasReencryptions({ programs }: Pick<Limits, "programs">): boolean {
  return programs.some(({ run, reencrypts }) => run === "reencrypt" || reencrypts === true);
}

/** A slot of an API server. */
export function serverOf(random: Random, { servers }: Limits): number {
  return Math.floor(random() * servers);
}

/** A slot of a program: mostly one of a run. */
export function programOf(random: Random, { programs }: Limits): number {
  const runs = programs.filter(({ run }) => run === "migrate" || run === "reencrypt").length;
  const isOfRun = random() < 2 / 3 && runs > 0;
  return Math.floor(random() * (isOfRun ? runs : programs.length));
}

const RUNS: ReadonlySet<string> = new Set(["migrate", "reencrypt", "controller"]);

/** The slots of what migrates. */
export function runsOf({ programs }: Limits): readonly number[] {
  return programs.flatMap(({ run }, slot) => (RUNS.has(run) ? [slot] : []));
}
