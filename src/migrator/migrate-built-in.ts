import type { CustomResourceDefinition } from "../api/crd.ts";
import { resourceNameOf } from "../api/migration.ts";
import { ownerAnnotationOf } from "../api/owner.ts";
import { messageOf } from "../errors.ts";
import type { HolderContext } from "../freeze/freeze.ts";
import { tryRemoveLeftovers } from "../freeze/leftovers.ts";
import { accessForArrivals, accessForEncryption, accessForRewrite, assertAccess } from "./access-check.ts";
import type { ServedResource } from "../resources/migratable.ts";
import { BuiltInRun } from "./built-in-run.ts";
import { Cleanup } from "../retry/cleanup.ts";
import { type FieldsConversion, fieldsReportOf } from "./rewrite/convert-fields.ts";
import { Tally } from "./rewrite/counts.ts";
import { type MigrationResult, outcomeOf, reportOf } from "./result.ts";
import { rewriteAll } from "./rewrite-all.ts";
import { CRDS } from "../kube/resources.ts";
import { ownStorageOf, SEE_API_SERVICES } from "./own-api.ts";
import type { RunContext } from "./run-context.ts";
import type { Fence } from "../kube/transport-options.ts";
import { deferRelease, type RunLease } from "../lease/run-lease.ts";
import { runUntilDone } from "./run-until-done.ts";
import { StartAgain } from "../retry/start-again.ts";
import { takeLease } from "./take-lease.ts";
import { watchingArrivals } from "./watch-arrivals.ts";
import { probedCrd, probeStuckRequest } from "./rewrite/stuck-probe.ts";

/**
 * Rewrites every object of a built-in resource. There is no storedVersions to prune and no storage version that a user
 * could change, so nothing is frozen. What the run rests on is proven before the first list and again at the end.
 *
 * @param crd of a custom resource that is only rewritten: a change of its storage version is settled, too
 * @throws {KsvmError} NotConverged where the API servers disagree on the storage version; RetryBudgetExceeded.
 */
export async function migrateBuiltIn(
  context: RunContext,
  resource: ServedResource,
  crd?: CustomResourceDefinition,
): Promise<MigrationResult> {
  const crdName = crd?.metadata.name;
  return await withoutFreeze(context, {
    resource,
    crdName,
    work: new BuiltInRun(resource, crdName),
    ...(crd === undefined ? {} : { first: (holder, lease) => liftOfDead(holder, lease, crd) }),
  });
}

/** What a dead run with a freeze left. */
async function liftOfDead(
  holder: RunContext & HolderContext,
  lease: string,
  crd: CustomResourceDefinition,
): Promise<void> {
  const { name: crdName } = crd.metadata;
  await tryRemoveLeftovers(holder, { crdName, lease, owner: ownerAnnotationOf(crd) }, (error) => {
    const message = `Cannot lift the freeze of "${crdName}" that a dead run has left: ${messageOf(error)}`;
    holder.emit({ type: "warning", message });
  });
}

/** What is done to a resource that is not frozen. */
export interface UnfrozenWork<T> {
  readonly resource: ServedResource;
  /** The CRD of a custom resource. */
  readonly crdName: string | undefined;
  /** Done once, with the Lease of this key, before the first attempt. @default nothing */
  readonly first?: (holder: RunContext & HolderContext, lease: string) => Promise<void>;
  readonly work: {
    /**
     * One attempt.
     * @param fence awaited before each write: the Lease must be held
     */
    attempt(context: RunContext, fence: Fence): Promise<T>;
    /** Called where what the attempt rested on did not last, and waited for. */
    forget(): void | Promise<void>;
  };
}

/**
 * Takes the Lease of the resource and does the work in attempts, waiting in between for what it got stuck on.
 * @throws as {@link migrateBuiltIn}; {KsvmError} OwnershipLost where the Lease is another's, or went back in time.
 */
async function withoutFreeze<T>(context: RunContext, unfrozen: UnfrozenWork<T>): Promise<T> {
  const { crdName, resource } = unfrozen;
  const name = resourceNameOf(resource);
  const access = accessForRewrite(resource, context.options);
  const isOwnMatter = crdName !== undefined || context.encryption !== undefined;
  await assertAccess(context, name, {
    wanted: [
      ...access,
      ...(isOwnMatter ? [SEE_API_SERVICES] : []),
      // To ask API servers whether they have followed it.
      ...(crdName === undefined ? [] : [{ verb: "list", resource: CRDS, name: crdName }]),
      ...accessForEncryption(context),
      ...accessForArrivals(context),
    ],
  });
  if (crdName === undefined && context.encryption !== undefined) {
    // Before API servers are waited for, of which none stores it.
    await ownStorageOf(context, resource);
  }
  return watchingArrivals(context, (watched) => {
    const cleanup = new Cleanup(watched);
    return cleanup.after(async () => {
      const lease = await takeLease(watched, name);
      // Whatever this run saw of API servers: the next one waits for all late writes in any case, as nothing was frozen.
      deferRelease(cleanup, lease, () => ({ keepCheckpoint: false }));
      const held = watched.client.fencedBy(() => lease.confirm(watched.signal));
      const renew = (): Promise<void> => lease.renew(watched.signal);
      await unfrozen.first?.({ ...watched, client: held, renew }, lease.key);
      return runAttempts({ ...unfrozen, context: watched, lease });
    });
  });
}

interface UnfrozenParts<T> extends UnfrozenWork<T> {
  readonly context: RunContext;
  readonly lease: RunLease;
}

function runAttempts<T>({ context, lease, resource, crdName, work }: UnfrozenParts<T>): Promise<T> {
  const { client, options } = context;
  const probed = { resource, otherVersions: [], kind: resource.kind };
  return runUntilDone({
    context,
    name: resourceNameOf(resource),
    // Nothing is frozen. An attempt that gets no further ends all the same, so that its status says what it waits for.
    maxFreezeIdleMs: options.maxFreezeIdleMs,
    attempt: async (attempt) => {
      const fence = (): Promise<void> => lease.confirm(attempt.signal, attempt.retrier);
      const done = await work.attempt({ ...attempt, client: client.fencedBy(fence) }, fence);
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
        await work.forget();
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
