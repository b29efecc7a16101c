import { restsOnFreeze } from "../plan.ts";
import type { ApiServerNode } from "./api-server-node.ts";
import type { World } from "./world.ts";

/**
 * Whether a command that freezes CRDs would not see an API server leave, as it has not looked at the identity Leases since that
 * one started. Where an API server is late, ksvm promises nothing then (docs/decisions/0010-a-stamp-is-no-proof.md): it leaves after they have looked,
 * and others start after it has ended. A run without a freeze waits for those that left before it, too, and so does a replica of a controller that
 * begins to lead.
 */
export function isUnseen({ cluster, plan, programs }: World, { startedAt }: ApiServerNode): boolean {
  return programs.some((program, slot) => {
    const started = plan.programs[slot];
    if (program === undefined || started === undefined || started.run === "controller") return false;
    const isOver = program.endText !== undefined || !program.process.isAlive;
    return restsOnFreeze(plan, started) && !isOver && !cluster.looks.hasSince(program.process.name, startedAt);
  });
}
