import { type CustomResourceDefinition, isClean } from "../../api/crd.ts";
import { failedPruneOf } from "../../in-tree/failed-prune.ts";
import { inTreeMigrations } from "../../in-tree/in-tree-migrations.ts";
import { pruneDoubtOf } from "../../in-tree/prune-doubt.ts";
import { unlessForbidden } from "../kube/unless-forbidden.ts";
import type { RunContext } from "./run-context.ts";

/**
 * The context of a run on a CRD whose storedVersions looks clean. Kubernetes' own migrator prunes it also where it failed, and when a
 * later migration begins, so where such a migration or the condition of the CRD shows that, the run rewrites every object, as a forced
 * one does. A user who may not see those migrations has the condition alone.
 * @throws {KsvmError} RetryBudgetExceeded
 */
export async function unlessPruneProven(context: RunContext, crd: CustomResourceDefinition): Promise<RunContext> {
  const { client, emit, options, retrier, signal } = context;
  if (options.force || !isClean(crd)) {
    return context;
  }
  const inTree = await retrier.run(() => unlessForbidden(() => inTreeMigrations(client, { signal })), signal);
  const { failed, versions } = failedPruneOf(crd, inTree ?? []);
  const doubt = pruneDoubtOf(crd);
  if (versions.length === 0 || (failed.length === 0 && doubt === undefined)) {
    return context;
  }
  const why =
    failed.length > 0
      ? `Kubernetes' own migration of this CRD failed (${failed.map(({ metadata }) => metadata.name).join(", ")})`
      : `Kubernetes' own migrator was at work on this CRD (${doubt})`;
  const after = failed.length > 0 ? "; delete the failed migration afterwards" : "";
  emit({
    type: "warning",
    message: `${why} and may have pruned ${versions.join(", ")} all the same: every object is rewritten${after}`,
  });
  return { ...context, options: { ...options, force: true } };
}
