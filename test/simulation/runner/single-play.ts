import { planOf } from "../plan-of.ts";
import type { Plan } from "../plan.ts";
import { playReport } from "../report/failure-report.ts";
import { readPlan } from "../report/plan-file.ts";
import { playHere } from "./play-here.ts";

/**
 * Plays one seed or one plan in this process, and prints what happens.
 * @returns whether nothing broke
 */
export async function playOne(what: { readonly seed: number } | { readonly planFile: string }): Promise<boolean> {
  const plan: Plan = "seed" in what ? planOf(what.seed) : readPlan(what.planFile);
  const played = await playHere({ plan, withTrace: true });
  console.log(playReport(plan, played).join("\n"));
  return played.violations.length === 0;
}
