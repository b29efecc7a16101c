import type { World } from "./line.ts";
import type { Scenario } from "./script-scenario.ts";
import { type NormalLine, normalLines } from "./normalize.ts";
import { Play } from "./play.ts";

/** What came of a scenario. */
export interface Played {
  readonly lines: readonly NormalLine[];
  /** What broke it off. */
  readonly error?: unknown;
}

/** Plays scenarios in one world: side by side, and then one by one those that run alone. */
export async function playAll(world: World, scenarios: readonly Scenario[]): Promise<ReadonlyMap<string, Played>> {
  const played = new Map<string, Played>();
  const run = async (scenario: Scenario): Promise<void> => {
    played.set(scenario.name, await playOne(world, scenario));
  };
  await Promise.all(scenarios.filter(({ alone }) => alone !== true).map(run));
  for (const scenario of scenarios.filter(({ alone }) => alone === true)) await run(scenario);
  return played;
}

/** Plays one scenario in a world. */
export async function playOne(world: World, scenario: Scenario): Promise<Played> {
  const play = new Play(world);
  try {
    await scenario.play(play);
    return { lines: normalLines(play.lines) };
  } catch (error) {
    return { lines: normalLines(play.lines), error };
  }
}
