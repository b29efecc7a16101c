import { type CrdCondition, type CustomResourceDefinition, storedVersionsOf } from "../../api/crd.ts";
import { MIGRATING_ANNOTATION, OWNER_ANNOTATION, STORAGE_MIGRATING_CONDITION } from "../../api/names.ts";
import { type Freezer, type FreezeOwner, freezerOf, isSameMigration } from "../../api/owner.ts";
import { KsvmError, messageOf } from "../../errors.ts";
import { ApiError } from "../kube/errors.ts";
import type { CallContext } from "../retry/call-context.ts";
import { type CrdChange, changeCrd } from "./change-crd.ts";
import { hasMigratingCondition } from "./freeze-rule.ts";
import { updateCrd } from "./freeze.ts";
import { isPolicyGuardThere, policyGuardOf, policyOwnersOf, removePolicyGuard } from "./guard-install.ts";
import { inTreeMigrations, inTreeResourceOf, isInTreeUnfinished } from "../../in-tree/in-tree-migrations.ts";
import { notInStoredVersions } from "../../in-tree/prune-doubt.ts";
import { findCrd } from "../../resources/read-crd.ts";

/** A freeze that a user is told of. */
interface SeenFreeze {
  readonly freezer: Freezer;
  /** Of the annotation that freezes. */
  readonly value: string;
}

/** What keeps the storage version of a CRD as it is. */
export interface FreezeFindings {
  readonly name: string;
  /** Whether one of our annotations is there. */
  readonly isAnnotated: boolean;
  /** Who froze it; missing where it is not frozen by the annotation. */
  readonly freeze?: SeenFreeze | undefined;
  /** Whom a policy and its binding belong to, which do nothing once the annotation is off; empty where neither is there. */
  readonly policyOwners: readonly (FreezeOwner | undefined)[];
  /** The condition of Kubernetes' own migrator: `stuck` where no migration of it explains the condition. */
  readonly condition: "absent" | "stuck" | "explained";
  /** What could not be found out, or stays as it is, in words. */
  readonly notes: readonly string[];
}

/**
 * Finds out what freezes a CRD.
 * @throws {KsvmError} ResourceNotFound where there is no such CRD.
 */
export async function inspectFreeze(context: CallContext, name: string): Promise<FreezeFindings> {
  const { client, retrier, signal } = context;
  const crd = await retrier.run(() => findCrd(client, name, { signal }), signal);
  if (crd === undefined) {
    const text = `Cannot unfreeze "${name}": no CustomResourceDefinition has this name (expected plural.group)`;
    throw new KsvmError("ResourceNotFound", text);
  }
  const notes: string[] = [];
  const policyOwners = await unlessDenied(notes, "leftover policies", () => policyOwnersOf(context, name));
  const condition = await conditionOf(context, crd, notes);
  return {
    name,
    isAnnotated: ourAnnotationsOn(crd).length > 0,
    freeze: freezeOn(crd),
    policyOwners: policyOwners ?? [],
    condition,
    notes,
  };
}

/** Whether there is nothing that {@link breakGlass} would take away. */
export function isNothingToLift({ isAnnotated, policyOwners, condition }: FreezeFindings): boolean {
  return !isAnnotated && policyOwners.length === 0 && condition !== "stuck";
}

/** What came of it. */
export interface BrokenGlass {
  /** What was done or left, a line each. */
  readonly lines: readonly string[];
  /** Whether something that was not found before freezes the CRD still. */
  readonly isFrozen: boolean;
}

/**
 * Takes away what was found to freeze a CRD, whichever client put it there. The annotations go first: nothing that fails after that keeps
 * the storage version frozen by them. What another run or client has put there since stays: the user was not told whose migration ends.
 * @throws {ApiError | TransportError | KsvmError} where the annotations or the condition cannot be taken off.
 */
export async function breakGlass(context: CallContext, findings: FreezeFindings): Promise<BrokenGlass> {
  const { name } = findings;
  const done: string[] = [];
  let isFrozen = false;
  const { isLifted, newer } = await liftAnnotations(context, findings);
  if (newer !== undefined) {
    const by = describeFreezer(newer.freezer);
    done.push(`left the freeze of "${name}": by now it is that of ${by}; run this again`);
    isFrozen = true;
  } else if (isLifted) {
    done.push(`"${name}" is no longer frozen`);
  }
  if (findings.condition === "stuck") {
    const { line, isLeft } = await liftCondition(context, name);
    done.push(line);
    isFrozen ||= isLeft;
  }
  if (findings.policyOwners.length > 0) {
    done.push(await sweepPolicy(context, findings, newer));
  }
  return { lines: done, isFrozen };
}

/** What a user is told of it; empty where storedVersions listed every version. */
export function listedAgain({ listed }: ClearedCondition): string {
  return listed.length === 0
    ? ""
    : `, and listed ${listed.join(", ")} in storedVersions again: the migration that began may have removed it, and rewritten nothing`;
}

/** A user may take their time before they confirm: what explains the condition may have begun since it was found, or ended. */
async function liftCondition(
  context: CallContext,
  name: string,
): Promise<{ readonly line: string; readonly isLeft: boolean }> {
  const { condition } = await inspectFreeze(context, name);
  const cleared = condition === "stuck" ? await clearCondition(context, name) : undefined;
  const what = `condition ${STORAGE_MIGRATING_CONDITION} of "${name}"`;
  return cleared === undefined
    ? { line: `left ${what}: it has changed, or a migration explains it by now; run this again`, isLeft: true }
    : { line: `cleared ${what}${listedAgain(cleared)}`, isLeft: false };
}

/** @returns whether they were taken off; `newer`: the freeze of another run or client, for which they stay */
async function liftAnnotations(
  context: CallContext,
  { name, freeze }: FreezeFindings,
): Promise<{ readonly isLifted: boolean; readonly newer: SeenFreeze | undefined }> {
  let isLifted = false;
  let newer: SeenFreeze | undefined;
  await updateCrd(context, name, (crd) => {
    const [now, found] = [freezeOn(crd), ourAnnotationsOn(crd)];
    newer = now === undefined || isSameFreeze(now, freeze) ? undefined : now;
    if (newer !== undefined || found.length === 0) {
      return undefined;
    }
    isLifted = true;
    return Object.fromEntries(found.map((key) => [key, null]));
  });
  return { isLifted, newer };
}

function ourAnnotationsOn({ metadata: { annotations = {} } }: CustomResourceDefinition): readonly string[] {
  return [MIGRATING_ANNOTATION, OWNER_ANNOTATION].filter((key) => Object.hasOwn(annotations, key));
}

function freezeOn({ metadata }: CustomResourceDefinition): SeenFreeze | undefined {
  const [freezer, value] = [freezerOf(metadata), metadata.annotations?.[MIGRATING_ANNOTATION]];
  return freezer === undefined || value === undefined ? undefined : { freezer, value };
}

/** That of a later attempt of the same run, or of the same migration, is the same. */
function isSameFreeze({ freezer: now, value }: SeenFreeze, before: SeenFreeze | undefined): boolean {
  if (now.kind === "run") {
    return before?.freezer.kind === "run" && isSameMigration(now.owner, before.freezer.owner);
  }
  return before?.freezer.kind === "other" && now.manager === before.freezer.manager && value === before.value;
}

/** What became of a condition that nothing explains. */
export interface ClearedCondition {
  /** Versions that are in storedVersions again. */
  readonly listed: readonly string[];
}

/**
 * Takes the condition off with which Kubernetes' own migrator began a migration that it never ended. It may have pruned storedVersions
 * when it began, and nothing shows that once the condition is gone: in the same write storedVersions lists every version of the CRD.
 * @returns `undefined` where it was not there, or says by now that the migration has ended
 * @throws as {@link changeCrd}
 */
export async function clearCondition(context: CallContext, name: string): Promise<ClearedCondition | undefined> {
  let listed: readonly string[] = [];
  const clear = (crd: CustomResourceDefinition): CrdChange | undefined => {
    const conditions = hasMigratingCondition(crd) ? withoutCondition(crd) : undefined;
    listed = notInStoredVersions(crd);
    if (conditions === undefined || listed.length === 0) {
      return conditions && { status: { conditions } };
    }
    return { status: { conditions, storedVersions: [...storedVersionsOf(crd), ...listed] } };
  };
  return (await changeCrd(context, name, clear, { subresource: "status" })) ? { listed } : undefined;
}

function withoutCondition({ status }: CustomResourceDefinition): readonly CrdCondition[] | undefined {
  const all = status?.conditions ?? [];
  const conditions = all.filter(({ type }) => type !== STORAGE_MIGRATING_CONDITION);
  return conditions.length === all.length ? undefined : conditions;
}

/** It does nothing without the annotation, so that what keeps it from being removed is no failure. */
async function sweepPolicy(
  context: CallContext,
  { name, policyOwners }: FreezeFindings,
  newer: SeenFreeze | undefined,
): Promise<string> {
  const policy = `ValidatingAdmissionPolicy "${policyGuardOf(name).name}"`;
  const keeper = newer?.freezer.kind === "run" ? newer.freezer.owner : undefined;
  // A run installs its policy before it freezes: that of the freeze that stays may have been found.
  const wasFound = (owner: FreezeOwner | undefined): boolean =>
    !(owner && keeper && isSameMigration(owner, keeper)) &&
    policyOwners.some((found) => (found && owner ? isSameMigration(found, owner) : found === owner));
  try {
    const removal = await removePolicyGuard(context, name, wasFound);
    // What counts is what is there now: another client may have written it, or put it back.
    if (removal === "kept" || (await isPolicyGuardThere(context, name))) {
      return `left ${policy}: by now it is that of another run or client; run this again`;
    }
    return removal === "removed" ? `removed ${policy}` : `${policy} was gone already`;
  } catch (error) {
    context.signal.throwIfAborted();
    return `left ${policy}${newer === undefined ? ", which does nothing now" : ""}: ${messageOf(error)}`;
  }
}

async function conditionOf(
  context: CallContext,
  { metadata, status }: CustomResourceDefinition,
  notes: string[],
): Promise<FreezeFindings["condition"]> {
  const isMigrating = (status?.conditions ?? []).some(
    (condition) => condition.type === STORAGE_MIGRATING_CONDITION && condition.status === "True",
  );
  if (!isMigrating) {
    return "absent";
  }
  const { client, retrier, signal } = context;
  const list = () => retrier.run(() => inTreeMigrations(client, { signal }), signal);
  const all = await unlessDenied(notes, `what explains condition ${STORAGE_MIGRATING_CONDITION}`, list);
  const running = all?.find((found) => isInTreeUnfinished(found) && inTreeResourceOf(found) === metadata.name);
  if (running !== undefined) {
    const by = `storageversionmigrations.storagemigration.k8s.io "${running.metadata.name}"`;
    notes.push(`condition ${STORAGE_MIGRATING_CONDITION} stays: ${by} is not finished; delete it to end it`);
  }
  return all !== undefined && running === undefined ? "stuck" : "explained";
}

/** What a user may not see must not keep the annotation from being lifted. */
async function unlessDenied<T>(notes: string[], what: string, read: () => Promise<T>): Promise<T | undefined> {
  try {
    return await read();
  } catch (error) {
    if (error instanceof ApiError && error.status === 403) {
      notes.push(`cannot look for ${what}: ${messageOf(error.said)}`);
      return undefined;
    }
    throw error;
  }
}

/** Who froze a CRD, in words. */
export function describeFreezer(freezer: Freezer): string {
  return describeOwner(freezer.kind === "run" ? freezer.owner : undefined);
}

/** Whose a freeze or a policy is, in words. */
export function describeOwner(owner: FreezeOwner | undefined): string {
  return owner === undefined
    ? "something other than ksvm"
    : `${owner.identity} (Lease "${owner.lease}") since ${owner.since}`;
}
