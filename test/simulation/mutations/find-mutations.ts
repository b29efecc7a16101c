import { MISTAKE } from "../programs/thrown-text.ts";
import { violationOf } from "../runner/play-seeds.ts";
import type { Played, PlayTask } from "../runner/play-task.ts";
import { simulationPool } from "../runner/simulation-pool.ts";
import type { WorkerPool } from "../runner/worker-pool.ts";
import { violationKind } from "../shrink/violation-kind.ts";
import type { Mutation } from "./mutation.ts";

/** What became of a mutation. */
export interface MutationResult {
  readonly mutation: Mutation;
  /** A seed that broke something with it, and nothing without it; missing where none did. */
  readonly found?: { readonly seed: number; readonly violation: string };
  /** How many seeds were played. */
  readonly seeds: number;
  readonly seconds: number;
}

/** Seeds one after the other. */
interface SeedRange {
  readonly from: number;
  readonly count: number;
}

/** How {@link findMutations} plays. */
export interface FindOptions {
  /** How many mutations are played side by side, each in a worker of its own. */
  readonly workers: number;
  /** What to play, whatever the mutation itself states. @default the seed that it states, or {@link SEEDS} */
  readonly range?: SeedRange | undefined;
  readonly onResult?: (result: MutationResult) => void;
  /** Ends all workers; mutations that were not played to their end have no result. */
  readonly signal?: AbortSignal;
}

/** Some mutations hang: a play of a second that answers nothing for so long is taken for that. */
const HANG_SECONDS = 30;
/** The seeds to play where none is stated. */
const SEEDS: SeedRange = { from: 1, count: 2_000 };

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
type Found = NonNullable<MutationResult["found"]>;

async function find(mutation: Mutation, plain: Pool, { range, signal }: FindOptions): Promise<MutationResult> {
  const stated = mutation.found === undefined ? SEEDS : { from: mutation.found.seed, count: 1 };
  const { from, count } = range ?? stated;
  const pool = simulationPool({ workers: 1, mutation: mutation.name, hangSeconds: HANG_SECONDS });
  const end = (): void => void pool.kill();
  signal?.addEventListener("abort", end);
  const startedAt = performance.now();
  try {
    const found = await firstFound(mutation, { pool, plain }, { from, count });
    const seconds = (performance.now() - startedAt) / 1_000;
    return found === undefined
      ? { mutation, seeds: count, seconds }
      : { mutation, found, seeds: found.seed - from + 1, seconds };
  } finally {
    signal?.removeEventListener("abort", end);
    await pool.kill();
  }
}

async function firstFound(
  mutation: Mutation,
  { pool, plain }: { readonly pool: Pool; readonly plain: Pool },
  { from, count }: SeedRange,
): Promise<Found | undefined> {
  // One ahead, so that the worker never waits for this process.
  let next = pool.do({ seed: from });
  for (let seed = from; seed < from + count; seed++) {
    const current = next;
    if (seed + 1 < from + count) next = pool.do({ seed: seed + 1 });
    const violation = violationOf(await current);
    if (pool.failure !== undefined) throw new Error(`mutation "${mutation.name}": ${pool.failure}`);
    // A mutation that throws is none of what it is named after, and what breaks without it as well says nothing about it.
    const isFound = violation !== undefined && !violation.startsWith(MISTAKE);
    if (isFound && violationOf(await plain.do({ seed })) === undefined) return { seed, violation };
  }
  return undefined;
}

/** Whether a mutation is as its definition says: found, in the seed that it states by what it says that breaks; or not found. */
export function isAsStated({ mutation, found }: MutationResult): boolean {
  const stated = mutation.found;
  if (stated === undefined || found === undefined) return stated === found;
  return found.seed !== stated.seed || violationKind(found.violation) === violationKind(stated.breaks);
}
