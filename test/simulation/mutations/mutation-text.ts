import type { MutationResult } from "./find-mutations.ts";

/** The results as a table in Markdown, for docs/simulation.md. */
export function mutationTable(results: readonly MutationResult[]): readonly string[] {
  return [
    "| what the code does wrong | in `src/` | found in seed | what broke |",
    "| --- | --- | --- | --- |",
    ...results.map(rowOf),
  ];
}

function rowOf({ mutation, found, seeds }: MutationResult): string {
  const files = [...new Set(mutation.edits.map(({ file }) => `\`${file}\``))].join(", ");
  const [seed, what] =
    found === undefined
      ? [`not in ${seeds.toLocaleString("en-US")}`, mutation.survives ?? "nothing: the simulation has to be extended"]
      : [`${found.seed}`, found.violation];
  return `| ${[mutation.name, files, seed, cellOf(what)].join(" | ")} |`;
}

const LONGEST = 120;

function cellOf(text: string): string {
  const line = text.replaceAll(/\s+/g, " ").replaceAll("|", "/");
  return line.length > LONGEST ? `${line.slice(0, LONGEST)}…` : line;
}

/** One line for the terminal. */
export function resultText({ mutation, found, seeds, seconds }: MutationResult): string {
  const within = mutation.withinSeeds === undefined ? "" : `, to be found within ${mutation.withinSeeds}`;
  const pace = `${seeds} seed${seeds === 1 ? "" : "s"}, ${seconds.toFixed(0)} s`;
  if (found === undefined) return `SURVIVES  ${mutation.name} (${pace}${within})`;
  return `found     ${mutation.name} (SEED=${found.seed}, ${pace}${within}): ${found.violation.split("\n")[0]}`;
}
