import { violationKind } from "../shrink/violation-kind.ts";
import type { Regression } from "./regression.ts";

/** The page docs/simulation-findings.md: what each regression broke, and which commit fixed it. */
export function findingsPage(regressions: readonly Regression[]): string {
  const rows = regressions.map(
    ({ name, wasWrong, violation, fixedIn }) =>
      `| \`${name}\` | ${cellOf(wasWrong)} | ${cellOf(violationKind(violation))} | ${fixedIn} |`,
  );
  return `${[...INTRODUCTION, ...rows].join("\n")}\n`;
}

const INTRODUCTION = [
  "# What the simulation found",
  "",
  'Each row is a plan in `test/simulation/regressions`. It broke something once; where its row begins with "Nothing", only a',
  "mutation breaks it. `make test` plays each plan. Where a mutation can bring the mistake back, `make test-mutations` also plays the plan with that",
  "mutation, and expects the same kind of failure. `make test` does so for a third of the plans.",
  "`make simulate PLAN=test/simulation/regressions/NAME.json` shows the trace of a plan. [Simulation](simulation.md) tells how plans are played,",
  "and what each check looks at. `make simulate-findings` writes this page.",
  "",
  "A *silence* is a time in which an API server answered nothing: ksvm waits for late writes after it.",
  "",
  "| plan | what was wrong | what it broke | fixed in |",
  "| --- | --- | --- | --- |",
];

function cellOf(text: string): string {
  return text.replaceAll(/\s+/g, " ").replaceAll("|", "\\|");
}
