import type { MutationResult } from "./find-mutations.ts";

/** One line for the terminal. */
export function resultText({ mutation, found, seeds, seconds }: MutationResult): string {
  const stated = mutation.found === undefined ? "" : `, to be found in seed ${mutation.found.seed}`;
  const pace = `${seeds} seed${seeds === 1 ? "" : "s"}, ${seconds.toFixed(0)} s${stated}`;
  if (found === undefined) return `SURVIVES  ${mutation.name} (${pace})`;
  return `found     ${mutation.name} (SEED=${found.seed}, ${pace}): ${found.violation.split("\n")[0]}`;
}
