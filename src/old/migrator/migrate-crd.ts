import { type CustomResourceDefinition, isClean, storageVersionOf, storedVersionsOf } from "../../api/crd.ts";
import { KsvmError } from "../../errors.ts";
import { accessForFreeze, accessForRewrite, assertAccess } from "./access-check.ts";
import { signedCheckpoint } from "./checkpoint-key.ts";
import { unlessPruneProven } from "./doubted-prune.ts";
import { Cleanup } from "../retry/cleanup.ts";
import { CrdRun, type CrdRunParts } from "./crd-run.ts";
import { assertNotForeign } from "../freeze/freeze.ts";
import type { GuardedCrd } from "../freeze/guard.ts";
import { waysOf } from "./crd-options.ts";
import { chooseGuard, explainUnseenGuard } from "./choose-guard.ts";
import { hasLeftovers, removeCheckpointKey, removeLeftovers } from "../freeze/leftovers.ts";
import { writtenByCrd } from "../../resources/request-resource.ts";
import type { MigrationResult } from "./result.ts";
import type { MigrationOptions, RunContext } from "./run-context.ts";
import type { RunMemory } from "./run-memory.ts";
import { deferRelease, type RunLease } from "../lease/run-lease.ts";
import { accessNeededFor } from "./run-roles.ts";
import { runUntilDone } from "./run-until-done.ts";
import { ServerRestarts } from "../apiservers/server-restarts.ts";
import { StartAgain } from "../retry/start-again.ts";
import { takeLease } from "./take-lease.ts";
import { watchingArrivals } from "./watch-arrivals.ts";
import { probedCrd, probeStuckRequest } from "./rewrite/stuck-probe.ts";

/**
 * Migrates one CRD by the workflow of KEP-2855: freeze, prove, converge and settle, rewrite every object, prune
 * storedVersions, unfreeze. The freeze is lifted on every way out.
 *
 * @param crd as it was found a moment ago. It decides whether there is anything to do; the holder of the Lease reads it again.
 * @throws {KsvmError} with the reason where the run failed; storedVersions is untouched then.
 */
export async function migrateCrd(context: RunContext, crd: CustomResourceDefinition): Promise<MigrationResult> {
  if (!isDue(context.options, crd) && !(await hasLeftovers(context, crd))) {
    return nothingToDo(crd);
  }
  const { guard: choice, leaseNamespace, subresource } = context.options;
  const { name: crdName } = crd.metadata;
  const chosen = await chooseGuard(context, crdName, choice);
  const guarded: GuardedCrd = { crdName, guard: chosen.guard };
  const { group, names } = crd.spec;
  const objects = { group, resource: names.plural };
  const wanted = [...accessForFreeze(guarded), ...accessForRewrite(objects, context.options)];
  const unseen =
    chosen.missing.length > 0 ? accessNeededFor(crdName, { guard: "webhook", leaseNamespace, subresource }) : [];
  await assertAccess(context, crdName, { wanted: [...wanted, ...unseen], besides: chosen.missing });
  const cleanup = new Cleanup(context);
  const work = (): Promise<MigrationResult> =>
    cleanup.after(async () => {
      const lease = await takeLease(context, crdName);
      let keepCheckpoint = lease.checkpoint !== undefined;
      let isDone = false;
      deferRelease(cleanup, lease, () => ({
        keepCheckpoint,
        keepHolder: !isDone && leavesLateWrites(context, crdName),
      }));
      const client = context.client.fencedBy(() => lease.confirm(context.signal));
      const renew = (): Promise<void> => lease.renew(context.signal);
      const current = await removeLeftovers({ ...context, client, renew }, crdName, lease.key);
      // Kubernetes' own migrator may have pruned it since it was found.
      const { context: run } = waysOf(await unlessPruneProven(context, current), current);
      if (!isDue(run.options, current)) {
        [isDone, keepCheckpoint] = [true, false];
        await removeCheckpointKey({ ...context, client }, crdName);
        return nothingToDo(current);
      }
      assertNotForeign(current, lease.key);
      writtenByCrd(current);
      keepCheckpoint = true;
      const memory = { known: knownCheckpoint(run, lease, current) };
      const result = await runForcedOrNot({ context: run, lease, guarded, memory });
      [isDone, keepCheckpoint] = [true, result.outcome === "incomplete"];
      return result;
    });
  return work().catch((error: unknown) => {
    throw explainUnseenGuard(error, crdName, chosen.missing);
  });
}

/**
 * Whether another process has to wait for late writes where this run ends: it may begin at once, as in the next Pod of a Job, and knows nothing of the
 * API servers that this one saw stand still, be behind, or leave.
 */
function leavesLateWrites({ isRemembered = false, options, seen }: RunContext, crdName: string): boolean {
  return !isRemembered && seen?.mayLateWriteCome(crdName, options.settleMs, options.shutdownDelayMs) === true;
}

/** A run believes the checkpoint of a Lease only if the run that froze the CRD last signed it: other clients may write Leases. */
function knownCheckpoint(
  { emit }: RunContext,
  { checkpoint }: RunLease,
  crd: CustomResourceDefinition,
): readonly string[] {
  const known = signedCheckpoint(checkpoint, crd);
  if (checkpoint !== undefined && known === undefined) {
    const reason = "the checkpoint in the Lease is not used: nothing shows that the last run on this CRD wrote it";
    emit({ type: "startingAgain", reason });
  }
  return known === undefined ? [] : [known];
}

/** What an API server writes that joins and leaves is in the storage version of a frozen CRD; its key may be another one. */
function runForcedOrNot(parts: Omit<CrdRunParts, "cleanup" | "restarts">): Promise<MigrationResult> {
  const { context } = parts;
  return context.options.force
    ? watchingArrivals(context, (watched) => runCrd({ ...parts, context: watched }))
    : runCrd(parts);
}

function runCrd(parts: Omit<CrdRunParts, "cleanup" | "restarts">): Promise<MigrationResult> {
  const { context, guarded, lease, memory } = parts;
  const { crdName } = guarded;
  const restarts = context.options.force ? new ServerRestarts() : undefined;
  return runUntilDone({
    context,
    name: crdName,
    maxFreezeIdleMs: context.options.maxFreezeIdleMs,
    attempt: (attemptContext, cleanup) => new CrdRun({ ...parts, context: attemptContext, cleanup, restarts }).run(),
    probe: async ({ stuckOn }, signal) => {
      await liftAgain(context, memory, signal);
      return stuckOn?.kind === "lease"
        ? lease.probe(signal)
        : probeStuckRequest(context.client, () => probedCrd(context.client, crdName, signal), { stuckOn, signal });
    },
    onError: async (error) => {
      if (error instanceof KsvmError && error.code === "FreezeLifted") {
        // A run that takes the Lease over sweeps the freeze first: then that is the reason to tell.
        await lease.assertNotTakenOver(context.signal);
      }
      if (error instanceof StartAgain || lease.isVoid) {
        // What it rested on was not true all along, so neither is the watermark: also for a run that comes later.
        memory.known = [];
        memory.objectsSeen = undefined;
        await lease.voidCheckpoint();
      }
    },
  });
}

/** Milliseconds that a run which waits spends on a freeze that could not be lifted, before it looks whether it can go on. */
const LIFT_MS = 5_000;

/** A freeze that could not be lifted when the attempt ended, as where a webhook of others denied that, would stay for as long as the run waits. */
async function liftAgain({ clock }: RunContext, memory: RunMemory, signal: AbortSignal): Promise<void> {
  try {
    await memory.liftAgain?.(AbortSignal.any([signal, clock.timeout(LIFT_MS)]));
    memory.liftAgain = undefined;
  } catch {
    signal.throwIfAborted();
  }
}

/** Whether a run has work: managedFields may name other versions in a CRD that is clean, too, and then it takes a flag. */
export function isDue(
  { force, managedFields }: Pick<MigrationOptions, "force" | "managedFields">,
  crd: CustomResourceDefinition,
): boolean {
  return force || managedFields === "convert" || !isClean(crd);
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
