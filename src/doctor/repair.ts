import { type CustomResourceDefinition, isClean, storedVersionsOf } from "../api/crd.ts";
import { epochOf } from "../apiservers/converge.ts";
import { KsvmError, messageOf } from "../errors.ts";
import { type FreezeOwner, freezerOf, unfreeze, unfreezeLeftBehind } from "../freeze/freeze.ts";
import { MIGRATING } from "../freeze/rule.ts";
import { deleteInTree, type InTreeMigration } from "../in-tree/in-tree-migrations.ts";
import { conditionsWithoutDoubt, failedPruneOf } from "../in-tree/prune-doubt.ts";
import { unlessForbidden } from "../kube/errors.ts";
import { type Crd, CRDS, type Lease, LEASES } from "../kube/objects.ts";
import { retry } from "../kube/retry.ts";
import { runningInTree } from "../migrator/in-tree.ts";
import { leaseName, RunLease } from "../migrator/run-lease.ts";
import type { MigrationResult } from "../migrator/types.ts";
import type { CallContext } from "../old/retry/call-context.ts";
import type { ListedObjects } from "../plan/check-types.ts";
import { changeCrd, clearCondition, conditionState } from "../plan/lift-by-hand.ts";
import { listedObjects } from "../plan/listed-objects.ts";
import { readCrd } from "../resources/crds.ts";
import {
  type CrdFacts,
  type Finding,
  type FindingKind,
  isRestored,
  restoredVersion,
  restoredVersionsOf,
} from "./diagnose.ts";
import { readInTree } from "./doctor-facts.ts";

/** What a repair of one CRD would do. Field names are those of `ksvm doctor --repair -o json`. */
export interface RepairPlan {
  readonly name: string;
  /** In this order; each is done only if the one before was. */
  readonly steps: readonly string[];
}

/** Findings that only an object migration settles, in every version that objects may be stored in. */
const LOSSES: ReadonlySet<FindingKind> = new Set(["unreadable-objects", "unproven-prune", "unfinished-repair"]);

/** Whether objects of a CRD are unreadable or would be lost. */
function isLoss({ finding, severity }: Finding): boolean {
  return LOSSES.has(finding) && severity !== "unknown";
}

/**
 * Whether a repair does anything about it. What it does not know, and what belongs to other owners, it leaves alone.
 */
function isRepaired(finding: Finding): boolean {
  const { finding: kind, severity } = finding;
  return (
    isLoss(finding) ||
    kind === "stale-stored-versions" ||
    kind === "stuck-storage-migrating" ||
    (kind === "stuck-freeze" && severity === "action")
  );
}

/** What a repair would do about findings, CRD by CRD. */
export function repairPlans(findings: readonly Finding[]): readonly RepairPlan[] {
  const repaired = findings.filter(isRepaired);
  const names = [...new Set(repaired.map(({ object }) => object))];
  return names.map((name) => ({ name, steps: stepsOf(repaired.filter(({ object }) => object === name)) }));
}

function stepsOf(findings: readonly Finding[]): readonly string[] {
  const has = (kind: FindingKind): boolean => findings.some(({ finding }) => finding === kind);
  const versions = [...new Set(findings.filter(isLoss).flatMap((finding) => finding.versions ?? []))].join(", ");
  const steps: readonly (readonly [isTaken: boolean, step: string])[] = [
    [has("stuck-freeze"), "lift the freeze of the dead run, and remove its policy"],
    [has("stuck-storage-migrating"), "clear the condition StorageMigrating"],
    [has("unreadable-objects"), `add ${versions} back to spec.versions, with served: false and every field kept`],
    [versions !== "", `add ${versions} to status.storedVersions, where it is not`],
    [
      has("unreadable-objects"),
      "list the objects, which counts them; another version that they name is brought back too",
    ],
    [
      versions !== "",
      "freeze, rewrite every object in the storage version, with --force, prune storedVersions, unfreeze",
    ],
    [
      versions === "" && has("stale-stored-versions"),
      "freeze, rewrite every object in the storage version, prune storedVersions, unfreeze",
    ],
    [has("unreadable-objects") || has("unfinished-repair"), "remove what was added to spec.versions again"],
    [
      has("unproven-prune"),
      "delete the migrations of Kubernetes' own migrator that failed, and the condition StorageMigrating that one left",
    ],
  ];
  return steps.filter(([isTaken]) => isTaken).map(([, step]) => step);
}

/** What a repair takes. */
export interface RepairContext extends CallContext {
  /** Unique to this repair: host name and a random part. */
  readonly identity: string;
  readonly leaseNamespace: string;
  readonly tell: (text: string) => void;
  /** Migrates one CRD with the engine, which alone prunes. @throws what the run ended in */
  readonly migrate: (name: string, options: { readonly force: boolean }) => Promise<MigrationResult>;
}

/**
 * Repairs what was found on one CRD. Each step leaves a state that is no less readable than the one before, and that
 * the next diagnosis finds: it can be interrupted anywhere.
 * @returns whether every object was migrated, where any had to be
 * @throws {KsvmError} AlreadyMigrating, ForeignFreeze where another owner is at work; RepairStopped; whatever `migrate`
 *   throws.
 */
export async function repairCrd(
  context: RepairContext,
  { crd, freeze }: CrdFacts,
  findings: readonly Finding[],
): Promise<boolean> {
  const { name } = crd.metadata;
  const own = findings.filter((finding) => finding.object === name && isRepaired(finding));
  const has = (kind: FindingKind): boolean => own.some(({ finding }) => finding === kind);
  if (has("stuck-freeze") && freeze !== undefined && freeze.owner !== "other") {
    await sweepDeadRun(context, name, freeze.owner);
  }
  if (has("stuck-storage-migrating")) {
    await clearStuck(context, name);
  }
  if (own.some(isLoss)) {
    return repairLoss(context, crd, has("unproven-prune"));
  }
  return !has("stale-stored-versions") || (await context.migrate(name, { force: false })).outcome !== "incomplete";
}

/**
 * Ends a run that the diagnosis has found dead. It gives up the Lease in its place as well, so that nobody waits for it
 * a second time: one that stood still and wakes up ends by that.
 */
async function sweepDeadRun(
  { client: { kube }, signal, tell }: RepairContext,
  crdName: string,
  { identity, lease }: FreezeOwner,
): Promise<void> {
  const isLifted = await unfreeze(kube, crdName, identity);
  if (isLifted) tell("lifted the freeze of a dead run");
  const [namespace = "", name = ""] = lease.split("/");
  // Whoever may write the annotation could name any Lease.
  if (name !== leaseName(crdName)) return;
  const path = `${LEASES}/${encodeURIComponent(namespace)}/leases/${encodeURIComponent(name)}`;
  const giveUp = async (): Promise<void> => {
    const found = await kube.find<Lease>(path, { signal });
    if (found?.spec?.holderIdentity !== identity) return;
    const { resourceVersion, uid } = found.metadata;
    await kube.patch(path, { metadata: { uid, resourceVersion }, spec: { holderIdentity: null } }, { signal });
  };
  await retry(kube, () => unlessForbidden(giveUp()), { signal });
}

/** What explains the condition may have begun since the diagnosis. */
async function clearStuck(context: RepairContext, name: string): Promise<void> {
  const { client, signal, tell } = context;
  if ((await conditionState(client, await readNow(context, name), signal)).state !== "stuck") return;
  const listed = await clearCondition(client.kube, name, signal);
  if (listed === undefined) return;
  const again =
    listed.length === 0
      ? ""
      : `, and listed ${listed.join(", ")} in storedVersions again: the migration that began may have removed it, and ` +
        "rewritten nothing";
  tell(`cleared the condition StorageMigrating${again}`);
}

function readNow({ client: { kube }, signal }: CallContext, name: string): Promise<Crd> {
  return retry(kube, () => kube.get<Crd>(`${CRDS}/${name}`, { signal }), { signal });
}

async function repairLoss(
  context: RepairContext,
  { metadata: { name } }: CustomResourceDefinition,
  isUnproven: boolean,
): Promise<boolean> {
  const { tell } = context;
  const inTree = (await readInTree(context)) ?? [];
  // Those that fail later did so beside the run below, and have pruned nothing that it did not prove.
  const failed = isUnproven ? failedPruneOf(await readCrd(context, name), inTree).failed : [];
  await holdingLease(context, name, async (held) => {
    const { count } = await bringBack(held, name);
    if (isUnproven) {
      await listStored(held, name, (crd) => failedPruneOf(crd, inTree).versions);
    }
    tell(`${count ?? 0} objects can be listed`);
  });
  const result = await context.migrate(name, { force: true });
  if (result.outcome !== "migrated") {
    return false;
  }
  // In this order: what was proven holds for the spec as it is until versions leave it.
  if (isUnproven) await removeDoubt(context, name, result.epoch);
  await removeRestored(context, name, result.epoch);
  for (const migration of failed) {
    await forget(context, migration);
  }
  return true;
}

/**
 * Works on a CRD that no run works on, and that nobody else has frozen. The freeze of a run that died since the
 * diagnosis is lifted.
 */
async function holdingLease(
  context: RepairContext,
  name: string,
  work: (held: RepairContext) => Promise<void>,
): Promise<void> {
  const { client, identity, leaseNamespace: namespace, tell } = context;
  const { kube } = client;
  const cannot = `Cannot repair "${name}"`;
  const lease = await RunLease.take(kube, { namespace, resource: name, identity, signal: context.signal });
  try {
    const signal = AbortSignal.any([context.signal, lease.lost]);
    const held = { ...context, signal };
    const crd = await readNow(held, name);
    if (crd.metadata.deletionTimestamp !== undefined) {
      throw new KsvmError("RepairStopped", `${cannot}: it is being deleted, and its objects with it`);
    }
    const { group, names } = crd.spec;
    const running = await runningInTree(kube, { group, plural: names.plural }, signal);
    if (running !== undefined) {
      throw new KsvmError("AlreadyMigrating", `${cannot}: ${messageOf(running)}; wait for it to end`);
    }
    const freezer = freezerOf(crd.metadata);
    if (freezer === "other") {
      const by = `something other than ksvm froze its storage version (annotation ${MIGRATING})`;
      throw new KsvmError("ForeignFreeze", `${cannot}: ${by}; wait for it to end, or: ksvm unfreeze ${name}`);
    }
    if (freezer !== undefined) {
      if (!(await unfreezeLeftBehind(kube, crd, signal))) {
        const by = `"${freezer.identity}" is migrating it (Lease "${freezer.lease}")`;
        throw new KsvmError("AlreadyMigrating", `${cannot}: ${by}; wait for it to end`);
      }
      tell("lifted the freeze of a dead run");
    }
    await work(held);
  } finally {
    await lease.release();
  }
}

async function forget({ client, retrier, signal, tell }: RepairContext, migration: InTreeMigration): Promise<void> {
  const remove = () => unlessForbidden(deleteInTree(client, migration, { signal }));
  const isDeleted = (await retrier.run(remove, signal)) ?? false;
  const { name } = migration.metadata;
  tell(isDeleted ? `deleted the failed migration "${name}"` : `left the failed migration "${name}": delete it`);
}

/** The field manager of what a repair writes to a CRD. Its changes of spec.versions count for the settle time. */
const FIELD_MANAGER = "ksvm-doctor";

function change(
  { client, signal }: RepairContext,
  name: string,
  subresource: "" | "/status",
  changeOf: (crd: CustomResourceDefinition) => { readonly spec?: object; readonly status?: object } | undefined,
): Promise<boolean> {
  const read = (crd: Crd) => changeOf(crd as unknown as CustomResourceDefinition);
  return changeCrd(client.kube, `${CRDS}/${name}`, subresource, signal, read, FIELD_MANAGER);
}

/** How long the API server may take to follow a change of the CRD, in milliseconds. */
const FOLLOW_MS = 60_000;
const POLL_MS = 1_000;
/** More versions than that are no CRD's history. */
const MAX_LOST_VERSIONS = 20;

/**
 * Brings back every version that the API server says objects are stored in and the CRD lacks, one after the other: a
 * list that fails names one of them. Each is in storedVersions before the next look, so that no client can drop it
 * again.
 * @returns what listing the objects shows then
 * @throws {KsvmError} RepairStopped where the objects cannot be listed for another reason
 */
async function bringBack(context: RepairContext, name: string): Promise<ListedObjects> {
  const { clock } = context.client.kube;
  // What an earlier repair brought back, and did not list.
  await listStored(context, name, restoredVersionsOf);
  const added = new Set<string>();
  let deadline = clock.monotonic() + FOLLOW_MS;
  for (;;) {
    const crd = await readCrd(context, name);
    const listed = await listedObjects(context, crd);
    const lost = listed?.unreadableIn;
    if (lost === undefined) {
      return listable(name, listed);
    }
    const isThere = crd.spec.versions.some((version) => version.name === lost);
    if (clock.monotonic() > deadline || added.size >= MAX_LOST_VERSIONS) {
      const text = `the API server still cannot read objects in ${lost}: ${listed?.problem ?? ""}`;
      throw new KsvmError("RepairStopped", `Cannot repair "${name}": ${text}`);
    }
    if (!isThere && (await addVersion(context, name, lost))) {
      context.tell(`added ${lost} back to spec.versions, with served: false`);
      added.add(lost);
      deadline = clock.monotonic() + FOLLOW_MS;
    }
    await listStored(context, name, restoredVersionsOf);
    await clock.sleep(POLL_MS, context.signal);
  }
}

function listable(name: string, listed: ListedObjects | undefined): ListedObjects {
  if (listed === undefined || listed.problem !== undefined) {
    const why = listed?.problem ?? "the CRD serves no version";
    throw new KsvmError(
      "RepairStopped",
      `Cannot repair "${name}": its objects cannot be listed: ${why}; nothing was migrated, and versions that were ` +
        "brought back stay in storedVersions; make that work, and run ksvm doctor --repair again",
    );
  }
  return listed;
}

function addVersion(context: RepairContext, name: string, version: string): Promise<boolean> {
  return change(context, name, "", ({ spec: { versions } }) =>
    versions.some((one) => one.name === version)
      ? undefined
      : { spec: { versions: [...versions, restoredVersion(version)] } },
  );
}

/**
 * Adds versions to storedVersions, and takes none out.
 * @param versionsOf those that objects may be stored in; the CRD has them
 */
async function listStored(
  context: RepairContext,
  name: string,
  versionsOf: (crd: CustomResourceDefinition) => readonly string[],
): Promise<void> {
  let missing: readonly string[] = [];
  const isListed = await change(context, name, "/status", (crd) => {
    const stored = storedVersionsOf(crd);
    missing = versionsOf(crd).filter((version) => !stored.includes(version));
    return missing.length === 0 ? undefined : { status: { storedVersions: [...stored, ...missing] } };
  });
  if (isListed) context.tell(`added ${missing.join(", ")} to status.storedVersions`);
}

/**
 * Removes the versions that a repair brought back.
 * @param provenFor `uid/generation` of the CRD that a run has proven every object for: what came later may rest on less
 * @throws {KsvmError} RepairStopped where the CRD is another one by now, or storedVersions lists more than the storage
 *   version
 */
async function removeRestored(context: RepairContext, name: string, provenFor: string | undefined): Promise<void> {
  let removed: readonly string[] = [];
  const isRemoved = await change(context, name, "", (crd) => {
    removed = restoredVersionsOf(crd);
    if (removed.length === 0) {
      return undefined;
    }
    if (epochOf(crd) !== provenFor || !isClean(crd)) {
      const text = `Cannot remove ${removed.join(", ")} from "${name}": another client changed the CRD since every object`;
      throw new KsvmError("RepairStopped", `${text} was migrated; run ksvm doctor --repair again`);
    }
    return { spec: { versions: crd.spec.versions.filter((version) => !isRestored(version)) } };
  });
  if (isRemoved) context.tell(`removed ${removed.join(", ")} from spec.versions`);
}

/**
 * Takes the condition off by which Kubernetes' own migrator says that its migration did not succeed: every object is
 * proven since, which nothing else would tell. One that says that a migration runs stays.
 */
async function removeDoubt(context: RepairContext, name: string, provenFor: string | undefined): Promise<void> {
  await change(context, name, "/status", (crd) => {
    const conditions = epochOf(crd) === provenFor && isClean(crd) ? conditionsWithoutDoubt(crd) : undefined;
    return conditions && { status: { conditions } };
  });
}
