import type { Regression } from "../regressions/regression.ts";
import type { Mutation } from "./mutation.ts";

/** The page docs/simulation-mutations.md: which seed finds each mutation, or which plan, or why none does. */
export function mutationsPage(
  byArea: Readonly<Record<string, readonly Mutation[]>>,
  regressions: readonly Pick<Regression, "mutation" | "name" | "violation">[],
): string {
  const all = Object.values(byArea).flat();
  const found = all.filter((mutation) => mutation.found !== undefined);
  const byPlan = new Map(regressions.map(({ mutation, name }) => [mutation, name]));
  const left = all.filter(({ found: inSeed, name }) => inSeed === undefined && byPlan.has(name));
  const areas = Object.entries(byArea).flatMap(([area, mutations]) => [
    "",
    `## ${area}`,
    "",
    "| what the code does wrong | found in seed | what breaks there, or why no seed breaks |",
    "| --- | --- | --- |",
    ...mutations.map((mutation) => rowOf(mutation, byPlan.get(mutation.name))),
  ]);
  return `${[...introduction(all.length, found.length, left.length), ...areas].join("\n")}\n`;
}

function introduction(all: number, found: number, byPlan: number): readonly string[] {
  return [
    "# Mistakes that the simulation finds",
    "",
    `A mutation is a change of \`src/\` that takes a safeguard away, or makes a rule wrong by one step. There are ${all}. The simulation finds ${found} of`,
    "them: in the seed that the table names something breaks with the mutation, and nothing without it. So a play of the seeds from 1 on finds the",
    "mutation within that many seeds. `make test-mutations` plays each of these seeds with its mutation and without it, and `make test` a third of them.",
    "",
    `No seed that was played finds the other ${all - found}. A [plan](simulation-findings.md) finds ${byPlan} of these. The table says why no seed does: another safeguard`,
    "does the same, so that it takes two mistakes, or the seeds have not met the moment at which the mistake does harm.",
    "",
    '[Simulation](simulation.md) tells what each kind of violation means. `make simulate-mutations MUTATION="do not freeze"` plays one mutation.',
    "`make simulate-findings` writes this page.",
  ];
}

function rowOf({ found, name, survives = "" }: Mutation, plan: string | undefined): string {
  const where =
    found === undefined ? (plan === undefined ? "" : `plan \`${plan}\``) : found.seed.toLocaleString("en-US");
  return `| ${[name, where, found?.breaks ?? survives].map(cellOf).join(" | ")} |`;
}

function cellOf(text: string): string {
  return text.replaceAll(/\s+/g, " ").replaceAll("|", "\\|");
}
