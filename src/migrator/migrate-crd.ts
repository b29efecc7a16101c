import { type CustomResourceDefinition, isClean, storageVersionOf, storedVersionsOf } from "../api/crd.ts";
import { freezeOwnerOf, hasFreezeAnnotation, ownerAnnotationOf } from "../api/owner.ts";
import { KsvmError } from "../errors.ts";
import { POLICIES } from "../kube/resources.ts";
import { accessForFreeze, accessForRewrite, assertAccess } from "./access-check.ts";
import { Cleanup } from "../retry/cleanup.ts";
import { CrdRun, type CrdRunParts } from "./crd-run.ts";
import { assertNotForeign, unfreeze } from "../freeze/freeze.ts";
import { chooseGuard, policyGuardOf, removePolicyGuard } from "../freeze/guard-install.ts";
import { readCrd } from "../resources/read-crd.ts";
import { crdResourceOf } from "../resources/request-resource.ts";
import type { MigrationResult } from "./result.ts";
import type { RunContext } from "./run-context.ts";
import { leaseNameOf } from "../lease/lease-acquire.ts";
import { deferRelease, RunLease } from "../lease/run-lease.ts";
import { runUntilDone } from "./run-until-done.ts";
import { ServerRestarts } from "../apiservers/server-restarts.ts";
import { StartAgain } from "../retry/start-again.ts";
import { probedCrd, probeStuckRequest } from "./rewrite/stuck-probe.ts";

/**
 * Migrates one CRD by the workflow of KEP-2855: freeze, prove, converge and settle, rewrite every object, prune
 * storedVersions, unfreeze. The freeze is lifted on every way out.
 *
 * @throws {KsvmError} with the reason where the run failed; storedVersions is untouched then.
 */
export async function migrateCrd(context: RunContext, crdName: string): Promise<MigrationResult> {
  const crd = await readCrd(context, crdName);
  if (!isDue(context, crd) && !(await hasLeftovers(context, crd))) {
    return nothingToDo(crd);
  }
  const resource = crdResourceOf(crd);
  const guard = await chooseGuard(context, crdName, context.options.guard);
  await assertAccess(context, crdName, [
    ...accessForFreeze(crdName, guard),
    ...accessForRewrite(resource, context.options.leaseNamespace),
  ]);
  const cleanup = new Cleanup(context);
  return cleanup.after(async () => {
    const lease = await acquireLease(context, crdName);
    let keepCheckpoint = true;
    deferRelease(cleanup, lease, () => ({ keepCheckpoint }));
    const client = context.client.fencedBy(() => lease.confirm(context.signal));
    const current = await sweep({ ...context, client }, crdName, lease);
    if (!isDue(context, current)) {
      keepCheckpoint = false;
      return nothingToDo(current);
    }
    assertNotForeign(current, lease.key);
    const result = await runCrd({ context, lease, guard, crdName });
    keepCheckpoint = result.outcome === "incomplete";
    return result;
  });
}

function runCrd(parts: Omit<CrdRunParts, "cleanup" | "memory" | "restarts">): Promise<MigrationResult> {
  const { context, crdName, lease } = parts;
  const memory: CrdRunParts["memory"] = {};
  const restarts = context.options.force ? new ServerRestarts() : undefined;
  return runUntilDone({
    context,
    name: crdName,
    maxFreezeIdleMs: context.options.maxFreezeIdleMs,
    attempt: (attemptContext, cleanup) =>
      new CrdRun({ ...parts, context: attemptContext, cleanup, memory, restarts }).run(),
    probe: ({ stuckOn }, signal) =>
      stuckOn?.kind === "lease"
        ? lease.probe(signal)
        : probeStuckRequest(context.client, () => probedCrd(context.client, crdName, signal), { stuckOn, signal }),
    onError: async (error) => {
      if (error instanceof KsvmError && error.code === "FreezeLifted") {
        // A run that takes the Lease over sweeps the freeze first: then that is the reason to tell.
        await lease.assertNotTakenOver(context.signal);
      }
      if (error instanceof StartAgain || lease.isVoid) {
        // What it rested on was not true all along, so neither is the watermark: also for a run that comes later.
        await lease.voidCheckpoint();
      }
    },
  });
}

function isDue({ options }: RunContext, crd: CustomResourceDefinition): boolean {
  return options.force || !isClean(crd);
}

/** The result for a CRD that is clean. */
export function nothingToDo(crd: CustomResourceDefinition): MigrationResult {
  return {
    resource: crd.metadata.name,
    outcome: "nothing-to-do",
    storageVersion: storageVersionOf(crd),
    storedVersions: storedVersionsOf(crd),
    failures: [],
    changedObjects: [],
  };
}

function acquireLease(context: RunContext, crdName: string): Promise<RunLease> {
  return RunLease.acquire({
    ...context,
    namespace: context.options.leaseNamespace,
    name: leaseNameOf(crdName),
    onContended: (holder) => context.emit({ type: "contended", holder }),
  });
}

async function hasLeftovers(context: RunContext, crd: CustomResourceDefinition): Promise<boolean> {
  if (hasFreezeAnnotation(crd)) {
    return freezeOwnerOf(crd) !== undefined;
  }
  const { client, retrier, signal } = context;
  const policy = policyGuardOf(crd.metadata.name);
  return (await retrier.run(() => client.find(POLICIES, policy, { signal }), signal)) !== undefined;
}

/** Takes off what a dead run on this Lease left behind. The holder of the Lease knows that it is dead. */
async function sweep(context: RunContext, crdName: string, lease: RunLease): Promise<CustomResourceDefinition> {
  const owner = ownerAnnotationOf(await readCrd(context, crdName));
  if (owner?.lease === lease.key) {
    await unfreeze(context, crdName, owner);
  }
  await removePolicyGuard(context, crdName, (found) => found?.lease === lease.key);
  return readCrd(context, crdName);
}
