import type { CustomResourceDefinition } from "../api/crd.ts";
import { freezerOf } from "../api/owner.ts";
import { KsvmError } from "../errors.ts";
import { clearCondition, inspectFreeze, listedAgain } from "../old/freeze/break-glass.ts";
import { assertNotForeign } from "../old/freeze/freeze.ts";
import { removeLeftovers } from "../old/freeze/leftovers.ts";
import { failedPruneOf } from "../in-tree/failed-prune.ts";
import { inTreeObjection } from "../in-tree/in-tree-guard.ts";
import { deleteInTree, type InTreeMigration, inTreeMigrations } from "../in-tree/in-tree-migrations.ts";
import { unlessForbidden } from "../old/kube/unless-forbidden.ts";
import { leaseNameOf } from "../old/lease/lease-acquire.ts";
import { holdRunLease } from "../old/lease/hold-run-lease.ts";
import type { LeaseRef } from "../old/lease/run-lease-ref.ts";
import type { MigrationResult } from "../old/migrator/result.ts";
import { readCrd } from "../resources/read-crd.ts";
import { bringBack, type BringBackContext, listStored, removeRestored } from "./bring-back.ts";
import { leaseOfRun } from "./doctor-facts.ts";
import type { Finding, FindingKind } from "./doctor-types.ts";
import { isLoss, isRepaired } from "./repair-steps.ts";

/** What a repair takes. */
export interface RepairContext extends BringBackContext {
  /** Unique to this repair: host name and a random part. */
  readonly identity: string;
  readonly leaseNamespace: string;
  /** Told that the Lease of a dead run was taken over: what that one saw of API servers is lost. */
  readonly onTakeOver: () => void;
  /** Migrates one CRD with the engine, which alone prunes. */
  readonly migrate: (name: string, options: { readonly force: boolean }) => Promise<MigrationResult>;
}

/**
 * Repairs what was found on one CRD. Each step leaves a state that is no less readable than the one before, and that the next
 * diagnosis finds: it can be interrupted anywhere.
 * @returns whether every object was migrated, where any had to be
 * @throws {KsvmError} AlreadyMigrating, ForeignFreeze where another owner is at work; RepairStopped; whatever `migrate` throws.
 */
export async function repairCrd(context: RepairContext, name: string, findings: readonly Finding[]): Promise<boolean> {
  const own = findings.filter((finding) => finding.object === name && isRepaired(finding));
  const has = (kind: FindingKind): boolean => own.some(({ finding }) => finding === kind);
  if (has("stuck-freeze")) {
    await sweepDeadRun(context, name);
  }
  if (has("stuck-storage-migrating")) {
    await clearStuck(context, name);
  }
  if (own.some(isLoss)) {
    return repairLoss(context, name, has("unproven-prune"));
  }
  return !has("stale-stored-versions") || (await context.migrate(name, { force: false })).outcome !== "incomplete";
}

/** Only the holder of its Lease knows that a run is dead. */
async function sweepDeadRun(context: RepairContext, name: string): Promise<void> {
  const freezer = freezerOf((await readCrd(context, name)).metadata);
  const ref = freezer?.kind === "run" ? leaseOfRun(name, freezer.owner) : undefined;
  if (ref !== undefined) {
    await holdingLease(context, { name, ref }, async () => context.tell("lifted the freeze of a dead run"));
  }
}

/** What explains the condition may have begun since the diagnosis. */
async function clearStuck(context: RepairContext, name: string): Promise<void> {
  const { condition } = await inspectFreeze(context, name);
  const cleared = condition === "stuck" ? await clearCondition(context, name) : undefined;
  if (cleared !== undefined) {
    context.tell(`cleared the condition StorageMigrating${listedAgain(cleared)}`);
  }
}

async function repairLoss(context: RepairContext, name: string, isUnproven: boolean): Promise<boolean> {
  const { client, leaseNamespace, retrier, signal, tell } = context;
  const subject = { name, ref: { namespace: leaseNamespace, name: leaseNameOf(name) } };
  const inTree = await retrier.run(() => unlessForbidden(() => inTreeMigrations(client, { signal })), signal);
  // Those that fail later did so beside the run below, and have pruned nothing that it did not prove.
  const failed = isUnproven ? failedOf(await readCrd(context, name), inTree ?? []) : [];
  await holdingLease(context, subject, async (held) => {
    const { count } = await bringBack(held, name);
    if (isUnproven) {
      await listStored(held, name, (crd) => failedPruneOf(crd, inTree ?? []).versions);
    }
    tell(`${count ?? 0} objects can be listed`);
  });
  const result = await context.migrate(name, { force: true });
  if (result.outcome !== "migrated") {
    return false;
  }
  await holdingLease(context, subject, (held) => removeRestored(held, name, result.crd));
  for (const migration of failed) {
    await forget(context, migration);
  }
  return true;
}

function failedOf(crd: CustomResourceDefinition, inTree: readonly InTreeMigration[]): readonly InTreeMigration[] {
  return failedPruneOf(crd, inTree).failed;
}

async function forget({ client, retrier, signal, tell }: RepairContext, migration: InTreeMigration): Promise<void> {
  const remove = () => unlessForbidden(() => deleteInTree(client, migration, { signal }));
  const isDeleted = (await retrier.run(remove, signal)) ?? false;
  const { name } = migration.metadata;
  tell(isDeleted ? `deleted the failed migration "${name}"` : `left the failed migration "${name}": delete it`);
}

/** Whom a Lease keeps away. */
interface Subject {
  /** The CRD. */
  readonly name: string;
  readonly ref: LeaseRef;
}

/**
 * Works on a CRD that no run works on, and on which no freeze is but one of a dead run, which is taken off. Nothing is written
 * before the Lease is confirmed.
 */
async function holdingLease(
  context: RepairContext,
  { name, ref }: Subject,
  work: (held: RepairContext) => Promise<void>,
): Promise<void> {
  const { signal } = context;
  const objection = await context.retrier.run(() => inTreeObjection(context.client, name, signal), signal);
  if (objection !== undefined) {
    throw objection;
  }
  await holdRunLease({ ...context, ...ref }, async (lease) => {
    const held = { ...context, client: context.client.fencedBy(() => lease.confirm(signal)) };
    const crd = await removeLeftovers({ ...held, renew: () => lease.renew(signal) }, name, lease.key);
    assertNotForeign(crd, lease.key);
    if (crd.metadata.deletionTimestamp !== undefined) {
      throw new KsvmError("RepairStopped", `Cannot repair "${name}": it is being deleted, and its objects with it`);
    }
    await work(held);
  });
}
