import type { Played, PlayTask } from "./play-task.ts";
import type { SeedList } from "./seed-list.ts";
import { addBroken, type BrokenSeed, type Totals } from "./totals.ts";
import type { Done } from "./worker-pool.ts";

/** What {@link playSeeds} plays and tells. */
export interface PlaySeedsOptions {
  /** As of a `WorkerPool`; ends with `ended` once the play is to stop. */
  readonly play: (task: PlayTask) => Promise<Done<Played>>;
  /** How many tasks may be under way. */
  readonly atOnce: number;
  readonly seeds: SeedList;
  /** Each play is added to these. */
  readonly totals: Totals;
  readonly onBroken?: (broken: BrokenSeed) => void;
  /** After each seed. @returns whether to stop: then no other seed is begun */
  readonly onPlayed?: () => boolean;
}

/** Plays all seeds of a list, or as many as it gets to. A seed whose worker dies or hangs is broken. */
export async function playSeeds(options: PlaySeedsOptions): Promise<void> {
  const { play, atOnce, seeds, onPlayed } = options;
  let isStopped = false;
  const lane = async (): Promise<void> => {
    while (!isStopped) {
      const seed = seeds.take();
      if (seed === undefined) return;
      const done = await play({ seed });
      if (done.kind === "ended") return;
      seeds.finish(seed);
      count(options, seed, done);
      if (onPlayed?.() === true) isStopped = true;
    }
  };
  await Promise.all(Array.from({ length: atOnce }, lane));
}

function count({ totals, onBroken }: PlaySeedsOptions, seed: number, done: Done<Played>): void {
  if (done.kind === "result") {
    totals.requests += done.result.requests;
    totals.events += done.result.events;
    totals.elapsedMs += done.result.elapsedMs;
  }
  const violation = violationOf(done);
  if (violation === undefined) return;
  addBroken(totals, { seed, violation });
  onBroken?.({ seed, violation });
}

/** The first thing that a play broke; a worker that was lost counts as one. */
export function violationOf(done: Done<Played>): string | undefined {
  switch (done.kind) {
    case "result":
      return done.result.violations[0];
    case "lost":
      return `lost: ${done.why}`;
    case "ended":
      return undefined;
  }
}
