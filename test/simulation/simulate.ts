import { actionSort } from "./actions/all.ts";
import { CHECKS } from "./checks/all.ts";
import type { Action, Plan } from "./plan.ts";
import { startProgram } from "./programs.ts";
import { type Sabotage, World } from "./world/world.ts";

/** What a simulation showed. */
interface Outcome {
  /** What must never be; empty where all went well. */
  readonly violations: readonly string[];
  /** What happened, one line for each. */
  readonly trace: readonly string[];
  /** Of ksvm. */
  readonly requests: number;
  /** Simulated milliseconds. */
  readonly elapsedMs: number;
}

/** What waits for a request of ksvm waits so long: a run that nothing holds up takes less, in milliseconds. */
const AIMED_MS = 150_000;
/** The writes that come with an action come within this time, in milliseconds. */
const BURST_MS = 3_000;
/** After the last disturbance everything has to end in this time, in milliseconds. */
const LIVENESS_MS = 1_800_000;
/** API servers follow what was written last, and what was under way on those that stood still is over, in milliseconds. */
const QUIET_MS = 75_000;

/** Plays a plan. It is the same each time. @param sabotage what is broken about ksvm */
export async function simulate(plan: Plan, sabotage?: Sabotage): Promise<Outcome> {
  const world = new World({ plan, sabotage, startProgram });
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
  const { cluster, schedule, trace, violations } = world;
  return { violations, trace, requests: cluster.requests, elapsedMs: schedule.now };
}

async function play(world: World): Promise<void> {
  const { schedule, plan } = world;
  let isSetUp = false;
  void world.setUp().then(() => (isSetUp = true));
  if (!(await schedule.run(() => isSetUp, 3_600_000))) throw new Error("the world cannot be set up");
  const finishes = CHECKS.map((begin) => begin(world));
  world.begin();
  for (const action of plan.actions) {
    const { on } = action;
    schedule.in(action.at, () =>
      on === undefined ? begin(world, action) : world.triggers.when(on, () => begin(world, action)),
    );
  }
  const isBroken = (): boolean => world.isBroken;
  const lastAt = Math.max(0, ...plan.actions.map(({ at, ms = 0, on }) => at + ms + waitedMs(on)));
  await schedule.run(isBroken, lastAt + 1_000);
  // Where API servers joined, an administrator takes longer than the plan says.
  await schedule.run(() => world.isBroken || !world.isAdministered, LIVENESS_MS);
  world.calm();
  if (!(await schedule.run(() => world.isBroken || world.isAtRest, LIVENESS_MS))) {
    world.violate("liveness: a run does not end");
  }
  await schedule.run(isBroken, QUIET_MS);
  for (const finish of finishes) if (!world.isBroken) await finish?.();
}

/** How long an action may have to wait for the request that it is aimed at, and after it, in milliseconds. */
function waitedMs(on: Action["on"]): number {
  return on === undefined ? 0 : AIMED_MS + (on.afterMs ?? 0);
}

function begin(world: World, action: Action): void {
  // What follows some time after a request may come too late.
  if (world.isCalm) return;
  const { at: _, on: __, do: name, ...parameters } = action;
  world.tell("world", `${name} ${JSON.stringify(parameters)}`);
  if (action.writes !== undefined) world.burst(action.writes, BURST_MS);
  void actionSort(action.do).play(world, action);
}
