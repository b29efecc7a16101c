import { readFileSync, renameSync, writeFileSync } from "node:fs";
import type { SeedListState } from "./seed-list.ts";
import type { Totals } from "./totals.ts";
import type { Tree } from "./tree.ts";
import { UsageError } from "./usage-error.ts";

/** What a file keeps of a play that is to be continued. */
export interface ResumeState {
  readonly tree: Tree;
  readonly mutation: string | null;
  readonly seeds: SeedListState;
  readonly totals: Totals;
}

/** What a play that wants to continue is. */
export type Wanted = Pick<ResumeState, "tree" | "mutation"> & { readonly from: number; readonly count: number };

/**
 * @returns `undefined` where there is no file yet
 * @throws {UsageError} where the file belongs to another play
 */
export function readResumeFile(file: string, wanted: Wanted): ResumeState | undefined {
  let text: string;
  try {
    text = readFileSync(file, "utf8");
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === "ENOENT") return undefined;
    throw new UsageError(`Cannot read "${file}": ${(error as Error).message}`);
  }
  const state = parsed(text);
  if (state === undefined)
    throw new UsageError(`Cannot continue from "${file}": it is no file of make simulate RESUME=…`);
  const why = differenceOf(state, wanted);
  if (why !== undefined)
    throw new UsageError(`Cannot continue from "${file}": ${why}; name another file, or remove it`);
  return state;
}

/** Replaces the file at once, so that a crash leaves the earlier one. @throws {UsageError} if it cannot be written */
export function writeResumeFile(file: string, state: ResumeState): void {
  try {
    writeFileSync(`${file}.new`, `${JSON.stringify(state, undefined, 1)}\n`);
    renameSync(`${file}.new`, file);
  } catch (error) {
    throw new UsageError(`Cannot write "${file}": ${(error as Error).message}`);
  }
}

function parsed(text: string): ResumeState | undefined {
  try {
    const state = JSON.parse(text) as Partial<ResumeState> | null;
    const isWhole =
      typeof state?.tree?.digest === "string" &&
      Array.isArray(state.seeds?.open) &&
      Array.isArray(state.totals?.broken);
    return isWhole ? (state as ResumeState) : undefined;
  } catch {
    return undefined;
  }
}

function differenceOf({ tree, mutation, seeds }: ResumeState, wanted: Wanted): string | undefined {
  if (tree.digest !== wanted.tree.digest) {
    return `it was played on another tree (commit ${tree.commit}, and this is ${wanted.tree.commit})`;
  }
  if (mutation !== wanted.mutation)
    return `it was played with ${mutation === null ? "no mutation" : `mutation "${mutation}"`}`;
  if (seeds.from !== wanted.from || seeds.count !== wanted.count) {
    return `it is of ${seeds.count} seeds from ${seeds.from}, and not of ${wanted.count} from ${wanted.from}`;
  }
  return undefined;
}
