import { REQUEST_TIMEOUT_MS } from "../world/api-server-node.ts";
import type { Answered } from "../world/user-actions.ts";
import type { World } from "../world/world.ts";

/** Whether a write may be done later: nobody answered, or a 504 was the answer. */
export function mayComeLate(answer: Answered | undefined): boolean {
  return answer === undefined || answer.status >= 500;
}

/** An API server that stood still writes what it was asked to when it goes on, up to its request timeout later. */
export async function untilWritten({ cluster, schedule }: World): Promise<void> {
  while (cluster.nodes.some(({ process }) => process.isPaused)) await schedule.wait(1_000);
  await schedule.wait(REQUEST_TIMEOUT_MS);
}
