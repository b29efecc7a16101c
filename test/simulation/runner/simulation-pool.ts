import { fileURLToPath } from "node:url";
import type { Options } from "./play-options.ts";
import type { Played, PlayTask } from "./play-task.ts";
import { WorkerPool } from "./worker-pool.ts";

/** Workers that play the simulation, with a mutation of the code under test where one is named. */
export function simulationPool(
  options: Pick<Options, "workers"> & Partial<Pick<Options, "hangSeconds" | "mutation">>,
): WorkerPool<PlayTask, Played> {
  const { workers, hangSeconds = 60, mutation } = options;
  const module = fileURLToPath(new URL("play-worker.ts", import.meta.url));
  // Also where there is none: `make MUTATION=…` hands its variables on, and what is whole would be played with the mutation.
  return new WorkerPool({ module, workers, hangSeconds, env: { MUTATION: mutation } });
}
