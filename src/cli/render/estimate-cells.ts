import type { Estimate } from "../../inventory/plan.ts";

/**
 * The requests and the time of a migration, for the columns REQUESTS and TIME; `-` where there is nothing to estimate.
 */
export function estimateCells(estimate: Estimate | undefined): readonly [requests: string, time: string] {
  return estimate === undefined ? ["-", "-"] : [String(estimate.requests), timeText(estimate.seconds)];
}

function timeText(seconds: number): string {
  return seconds < 300 ? `~${seconds}s` : `~${Math.ceil(seconds / 60)}m`;
}
