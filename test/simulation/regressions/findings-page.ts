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
  "Each row is a plan in `test/simulation/regressions` that broke something once. `make test` plays it, and plays it again with the mistake put",
  "back, where it has to break the same kind of thing. `make simulate PLAN=test/simulation/regressions/NAME.json` shows its trace.",
  "[Simulation](simulation.md) tells how plans are played, and what each kind of violation means.",
  "`make simulate-findings` writes this page.",
  "",
  "| plan | what was wrong | what it broke | fixed in |",
  "| --- | --- | --- | --- |",
];

function cellOf(text: string): string {
  return text.replaceAll(/\s+/g, " ").replaceAll("|", "\\|");
}
