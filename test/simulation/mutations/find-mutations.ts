import { MISTAKE } from "../programs/thrown-text.ts";
import { violationOf } from "../runner/play-seeds.ts";
import type { Played, PlayTask } from "../runner/play-task.ts";
import { simulationPool } from "../runner/simulation-pool.ts";
import type { WorkerPool } from "../runner/worker-pool.ts";
import type { Mutation } from "./mutation.ts";

/** What became of a mutation. */
export interface MutationResult {
  readonly mutation: Mutation;
  /** The first seed that broke something with it, and nothing without it; missing where none did. */
  readonly found?: { readonly seed: number; readonly violation: string };
  /** How many seeds were played. */
  readonly seeds: number;
  readonly seconds: number;
}

/** How {@link findMutations} plays. */
export interface FindOptions {
  /** How many mutations are played side by side, each in a worker of its own. */
  readonly workers: number;
  /** The most seeds for each, instead of what the mutation itself states. */
  readonly seeds?: number | undefined;
  /** @default 1 */
  readonly from?: number;
  readonly onResult?: (result: MutationResult) => void;
  /** Ends all workers; mutations that were not played to their end have no result. */
  readonly signal?: AbortSignal;
}

/** The most seeds, where a mutation does not state their number. */
const SEEDS = 2_000;

/** Plays each mutation, seed after seed, until one breaks something. @returns their results in the order of the mutations */
export async function findMutations(
  mutations: readonly Mutation[],
  options: FindOptions,
): Promise<readonly MutationResult[]> {
  const waiting = [...mutations.entries()];
  const results: MutationResult[] = [];
  const plain = simulationPool({ workers: 1 });
  const lane = async (): Promise<void> => {
    for (let next = waiting.shift(); next !== undefined && !isOver(options); next = waiting.shift()) {
      const [index, mutation] = next;
      const result = await find(mutation, plain, options);
      if (isOver(options)) return;
      results[index] = result;
      options.onResult?.(result);
    }
  };
  try {
    await Promise.all(Array.from({ length: options.workers }, lane));
  } finally {
    await plain.kill();
  }
  return results.filter((result) => result !== undefined);
}

function isOver({ signal }: FindOptions): boolean {
  return signal?.aborted === true;
}

type Pool = WorkerPool<PlayTask, Played>;

async function find(mutation: Mutation, plain: Pool, options: FindOptions): Promise<MutationResult> {
  const { from = 1, seeds = mutation.withinSeeds ?? SEEDS, signal } = options;
  const pool = simulationPool({ workers: 1, mutation: mutation.name });
  const end = (): void => void pool.kill();
  signal?.addEventListener("abort", end);
  const startedAt = performance.now();
  const seconds = (): number => (performance.now() - startedAt) / 1_000;
  try {
    // One ahead, so that the worker never waits for this process.
    let next = pool.do({ seed: from });
    for (let seed = from; seed < from + seeds; seed++) {
      const [current, after] = [next, pool.do({ seed: seed + 1 })];
      next = after;
      const violation = violationOf(await current);
      if (pool.failure !== undefined) throw new Error(`mutation "${mutation.name}": ${pool.failure}`);
      // A mutation that throws is none of what it is named after, and what breaks without it as well says nothing about it.
      const isFound = violation !== undefined && !violation.startsWith(MISTAKE);
      if (isFound && violationOf(await plain.do({ seed })) === undefined) {
        return { mutation, found: { seed, violation }, seeds: seed - from + 1, seconds: seconds() };
      }
    }
    return { mutation, seeds, seconds: seconds() };
  } finally {
    signal?.removeEventListener("abort", end);
    await pool.kill();
  }
}

/** Whether a mutation is as its definition says: found, or not found where it says that it survives. */
export function isAsStated({ mutation, found }: MutationResult): boolean {
  return (found !== undefined) === (mutation.survives === undefined);
}
