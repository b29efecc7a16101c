import { builtInKinds } from "../model/built-in-kinds.ts";
import { kindKey, type ServedKind } from "../model/served-kinds.ts";
import type { KindPlan } from "../plan.ts";
import { groupOf } from "../world/kinds.ts";
import type { SimCluster } from "../world/sim-cluster.ts";

/** A built-in resource as each API server that lives has it; without those that do not serve it. */
export function servedBy({ nodes }: SimCluster, kind: KindPlan): readonly ServedKind[] {
  const key = kindKey({ group: groupOf(kind), version: kind.versions.at(-1) ?? "", resource: kind.plural });
  return nodes.flatMap(({ api: { release } }) => builtInKinds(release).get(key) ?? []);
}

/** The versions that the API servers which live store a built-in resource in: `group/version`. */
export function storedVersionsOf(cluster: SimCluster, kind: KindPlan): ReadonlySet<string> {
  return new Set(servedBy(cluster, kind).map(({ storedApiVersion }) => storedApiVersion));
}
