import type { Plan } from "../plan.ts";
import type { Played } from "../runner/play-task.ts";
import { planText } from "./plan-text.ts";

/** What is told of one plan that was played: what it is, what happened, and what broke. */
export function playReport(
  plan: Plan,
  { violations, trace = [], requests, events, elapsedMs }: Played,
): readonly string[] {
  const end =
    violations.length === 0
      ? `nothing broke (${requests} requests, ${events} events, ${Math.round(elapsedMs / 60_000)} simulated minutes)`
      : `BROKEN: ${violations.join("; ")}`;
  return [
    "The plan:",
    ...planText(plan).map((line) => `  ${line}`),
    "",
    "The trace (seconds since the world was set up, the revision of etcd, who, what):",
    ...trace,
    "",
    end,
  ];
}
