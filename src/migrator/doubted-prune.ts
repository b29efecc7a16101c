import { type CustomResourceDefinition, isClean } from "../api/crd.ts";
import { failedPruneOf } from "../in-tree/failed-prune.ts";
import { inTreeMigrations } from "../in-tree/in-tree-migrations.ts";
import { unlessForbidden } from "../kube/unless-forbidden.ts";
import type { RunContext } from "./run-context.ts";

/**
 * The context of a run on a CRD whose storedVersions looks clean. Kubernetes' own migrator prunes it also where it failed, so where
 * there is such a migration the run rewrites every object, as a forced one does. A user who may not see those migrations is not told.
 * @throws {KsvmError} RetryBudgetExceeded
 */
export async function unlessPruneProven(context: RunContext, crd: CustomResourceDefinition): Promise<RunContext> {
  const { client, emit, options, retrier, signal } = context;
  if (options.force || !isClean(crd)) {
    return context;
  }
  const inTree = await retrier.run(() => unlessForbidden(() => inTreeMigrations(client, { signal })), signal);
  const { failed, versions } = failedPruneOf(crd, inTree ?? []);
  if (failed.length === 0 || versions.length === 0) {
    return context;
  }
  const names = failed.map(({ metadata }) => metadata.name).join(", ");
  emit({
    type: "warning",
    message:
      `Kubernetes' own migration of this CRD failed (${names}) and may have pruned ${versions.join(", ")} all the same: every ` +
      "object is rewritten; delete the failed migration afterwards",
  });
  return { ...context, options: { ...options, force: true } };
}
