import type { RunSettings } from "../../src/migrator/assemble-run.ts";
import { actionSort } from "./actions/all-actions.ts";
import { CHECKS } from "./checks/all-checks.ts";
import type { Action, Plan } from "./plan.ts";
import { startProgram } from "./programs/all-programs.ts";
import { SETTINGS } from "./programs/migrate-program.ts";
import { LIVENESS_MS, World } from "./world/world.ts";

/** What a simulation showed. */
export interface Outcome {
  /** What must never be; empty where all went well. */
  readonly violations: readonly string[];
  /** What happened, one line for each. */
  readonly trace: readonly string[];
  readonly events: number;
  /** Of ksvm. */
  readonly requests: number;
  /** Simulated milliseconds. */
  readonly elapsedMs: number;
  /** How the programs ended, in words. */
  readonly ends: readonly string[];
}

/** What waits for a request of ksvm waits so long: a run that nothing holds up takes less, in milliseconds. */
const AIMED_MS = 150_000;
/** The writes that come with an action come within this time, in milliseconds. */
const BURST_MS = 3_000;

/**
 * Plays a plan. It is the same each time.
 * @param settings of all runs; a test that wants to see a violation takes a safeguard away
 */
export async function simulate(plan: Plan, settings: RunSettings = SETTINGS): Promise<Outcome> {
  const world = new World({ plan, settings, startProgram });
  const { random, limit } = { random: Math.random, limit: Error.stackTraceLimit };
  Math.random = world.streams("Math.random");
  // Nobody reads the stacks of errors, and they take a tenth of the time.
  Error.stackTraceLimit = 0;
  try {
    await play(world);
  } finally {
    await world.schedule.end();
    Math.random = random;
    Error.stackTraceLimit = limit;
  }
  return {
    violations: world.violations,
    trace: world.trace,
    events: world.schedule.events,
    requests: world.cluster.requests,
    elapsedMs: world.schedule.now,
    ends: world.programs.map((program) => program?.endText ?? "still running"),
  };
}

async function play(world: World): Promise<void> {
  const { schedule, plan } = world;
  let isSetUp = false;
  void world.setUp().then(() => (isSetUp = true));
  if (!(await schedule.run(() => isSetUp, 3_600_000))) throw new Error("the world cannot be set up");
  const checks = CHECKS.map((begin) => begin(world));
  world.begin();
  for (const action of plan.actions) {
    const { on } = action;
    schedule.in(action.at, () =>
      on === undefined ? begin(world, action) : world.triggers.when(on, () => begin(world, action)),
    );
  }
  const lastAt = Math.max(0, ...plan.actions.map(({ at, ms = 0, on }) => at + ms + waitedMs(on)));
  await schedule.run(() => world.isBroken, lastAt + 1_000);
  // Where API servers joined, it takes longer than its plan says.
  const isSettled = (): boolean => world.isBroken || !world.isAdministered;
  if (!isSettled()) await schedule.run(isSettled, LIVENESS_MS);
  world.calm();
  const areOver = (): boolean => world.isBroken || world.isAtRest;
  if (!(await schedule.run(areOver, LIVENESS_MS))) world.violate("liveness: a run does not end");
  // API servers follow what was removed last, and what was under way on those that stood still is over.
  await schedule.run(() => world.isBroken, 75_000);
  for (const check of checks) if (!world.isBroken) await check.finish?.();
}

/** How long an action may have to wait for the request that it is aimed at, and after it, in milliseconds. */
function waitedMs(on: Action["on"]): number {
  return on === undefined ? 0 : AIMED_MS + (on.afterMs ?? 0);
}

function begin(world: World, action: Action): void {
  // What follows some time after a request may come too late.
  if (world.isCalm) return;
  const { at: _, do: name, ...parameters } = action;
  world.tell("world", `${name} ${JSON.stringify(parameters)}`);
  if (action.writes !== undefined) world.burst(action.writes, BURST_MS);
  void actionSort(action.do).play(world, action);
}
