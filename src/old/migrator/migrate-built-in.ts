import type { CustomResourceDefinition } from "../../api/crd.ts";
import { resourceNameOf } from "../../api/migration.ts";
import { ownerAnnotationOf } from "../../api/owner.ts";
import { messageOf } from "../../errors.ts";
import { tryRemoveLeftovers } from "../freeze/leftovers.ts";
import { accessForArrivals, accessForEncryption, accessForRewrite, assertAccess } from "./access-check.ts";
import type { ServedResource } from "../../resources/migratable.ts";
import { BuiltInRun } from "./built-in-run.ts";
import { Cleanup } from "../retry/cleanup.ts";
import { type FieldsConversion, fieldsReportOf } from "./rewrite/convert-fields.ts";
import { Tally } from "./rewrite/counts.ts";
import { type MigrationResult, outcomeOf, reportOf } from "./result.ts";
import { rewriteAll } from "./rewrite-all.ts";
import { CRDS } from "../kube/resources.ts";
import { ownStorageOf, SEE_API_SERVICES } from "./own-api.ts";
import type { RunContext } from "./run-context.ts";
import { deferRelease, type RunLease } from "../lease/run-lease.ts";
import { runUntilDone } from "./run-until-done.ts";
import { StartAgain } from "../retry/start-again.ts";
import { takeLease } from "./take-lease.ts";
import { watchingArrivals } from "./watch-arrivals.ts";
import { probedCrd, probeStuckRequest } from "./rewrite/stuck-probe.ts";

/**
 * Rewrites every object of a built-in resource. There is no storedVersions to prune and no storage version that a user
 * could change, so nothing is frozen. What the run rests on is proven before the first list and again at the end. It takes the Lease
 * of the resource, and works in attempts, waiting in between for what it got stuck on.
 *
 * @param crd of a custom resource that is only rewritten: a change of its storage version is settled, too
 * @throws {KsvmError} NotConverged where the API servers disagree on the storage version; RetryBudgetExceeded; OwnershipLost where the
 *   Lease is another's, or went back in time.
 */
export async function migrateBuiltIn(
  context: RunContext,
  resource: ServedResource,
  crd?: CustomResourceDefinition,
): Promise<MigrationResult> {
  const name = resourceNameOf(resource);
  const isOwnMatter = crd !== undefined || context.encryption !== undefined;
  await assertAccess(context, name, {
    wanted: [
      ...accessForRewrite(resource, context.options),
      ...(isOwnMatter ? [SEE_API_SERVICES] : []),
      // To ask API servers whether they have followed it.
      ...(crd === undefined ? [] : [{ verb: "list", resource: CRDS, name: crd.metadata.name }]),
      ...accessForEncryption(context),
      ...accessForArrivals(context),
    ],
  });
  if (crd === undefined && context.encryption !== undefined) {
    // Before API servers are waited for, of which none stores it.
    await ownStorageOf(context, resource);
  }
  return watchingArrivals(context, (watched) => {
    const cleanup = new Cleanup(watched);
    return cleanup.after(async () => {
      const lease = await takeLease(watched, name);
      // Whatever this run saw of API servers: the next one waits for all late writes in any case, as nothing was frozen.
      deferRelease(cleanup, lease, () => ({ keepCheckpoint: false }));
      if (crd !== undefined) {
        await liftOfDead(watched, lease, crd);
      }
      return runAttempts(watched, lease, { resource, crdName: crd?.metadata.name });
    });
  });
}

/** What a dead run with a freeze left. */
async function liftOfDead(context: RunContext, lease: RunLease, crd: CustomResourceDefinition): Promise<void> {
  const { client, emit, signal } = context;
  const { name: crdName } = crd.metadata;
  const holder = {
    ...context,
    client: client.fencedBy(() => lease.confirm(signal)),
    renew: () => lease.renew(signal),
  };
  await tryRemoveLeftovers(holder, { crdName, lease: lease.key, owner: ownerAnnotationOf(crd) }, (error) => {
    const message = `Cannot lift the freeze of "${crdName}" that a dead run has left: ${messageOf(error)}`;
    emit({ type: "warning", message });
  });
}

function runAttempts(
  context: RunContext,
  lease: RunLease,
  { crdName, resource }: { readonly resource: ServedResource; readonly crdName: string | undefined },
): Promise<MigrationResult> {
  const { client, options } = context;
  const run = new BuiltInRun(resource, crdName);
  const probed = { resource, otherVersions: [], kind: resource.kind };
  return runUntilDone({
    context,
    name: resourceNameOf(resource),
    // Nothing is frozen. An attempt that gets no further ends all the same, so that its status says what it waits for.
    maxFreezeIdleMs: options.maxFreezeIdleMs,
    attempt: async (attempt) => {
      const fence = (): Promise<void> => lease.confirm(attempt.signal, attempt.retrier);
      const done = await run.attempt({ ...attempt, client: client.fencedBy(fence) }, fence);
      // Where etcd was restored from a backup since the last write, what was written is gone, and no write is left to tell.
      await lease.renew(attempt.signal, attempt.retrier);
      return done;
    },
    probe: ({ stuckOn }, signal) =>
      stuckOn?.kind === "lease"
        ? lease.probe(signal)
        : probeStuckRequest(client, async () => (crdName === undefined ? probed : probedCrd(client, crdName, signal)), {
            stuckOn,
            signal,
          }),
    onError: async (error) => {
      if (error instanceof StartAgain) {
        run.forget();
      }
    },
  });
}

/** Tries every object of a resource by a dry-run: says which would be rejected, changes nothing. */
export async function dryRun(
  context: RunContext,
  resource: ServedResource,
  conversion?: FieldsConversion,
): Promise<MigrationResult> {
  const tally = new Tally();
  await rewriteAll(context, resource, { tally, conversion });
  const outcome = outcomeOf(tally, "dry-run");
  const managedFields = conversion === undefined ? {} : { managedFields: fieldsReportOf(conversion.converted, tally) };
  return { resource: resourceNameOf(resource), outcome, isDryRun: true, ...managedFields, ...reportOf(tally) };
}
