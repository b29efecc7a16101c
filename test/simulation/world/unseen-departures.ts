import { restsOnFreeze } from "../plan.ts";
import type { ApiServerNode } from "./api-server-node.ts";
import type { World } from "./world.ts";

/**
 * Whether a process that freezes CRDs would not see an API server leave, as it has not looked at the identity Leases since that
 * one started. Of the replicas of a controller one is enough: a leader counts on what the one before it may have seen. Where an API server is late, ksvm promises nothing then (docs/decisions/0010-a-stamp-is-no-proof.md): it leaves after they have looked,
 * and others start after it has ended. A run without a freeze waits for those that left before it, too.
 */
export function isUnseen({ cluster, plan, programs }: World, { startedAt }: ApiServerNode): boolean {
  const living = programs.flatMap((program, slot) => {
    const started = plan.programs[slot];
    if (program === undefined || started === undefined || !restsOnFreeze(plan, started)) return [];
    const isOver = program.endText !== undefined || !program.process.isAlive;
    const hasLooked = cluster.looks.hasSince(program.process.name, startedAt);
    return isOver ? [] : [{ isReplica: started.run === "controller", hasLooked }];
  });
  const replicas = living.filter(({ isReplica }) => isReplica);
  const isUnseenByReplicas = replicas.length > 0 && !replicas.some(({ hasLooked }) => hasLooked);
  return isUnseenByReplicas || living.some(({ isReplica, hasLooked }) => !isReplica && !hasLooked);
}
