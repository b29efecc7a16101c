import { type CrdCondition, type CustomResourceDefinition, storedVersionsOf } from "../api/crd.ts";
import { MIGRATING_ANNOTATION, OWNER_ANNOTATION, STORAGE_MIGRATING_CONDITION } from "../api/names.ts";
import { freezeOwnerOf, hasFreezeAnnotation } from "../api/owner.ts";
import { KsvmError, messageOf } from "../errors.ts";
import { ApiError } from "../kube/errors.ts";
import type { CallContext } from "../retry/call-context.ts";
import { type CrdChange, changeCrd } from "./change-crd.ts";
import { hasMigratingCondition } from "./freeze-rule.ts";
import { updateCrd } from "./freeze.ts";
import { isPolicyGuardThere, policyGuardOf, removePolicyGuard } from "./guard-install.ts";
import { inTreeMigrations, inTreeResourceOf, isInTreeUnfinished } from "../in-tree/in-tree-migrations.ts";
import { notInStoredVersions } from "../in-tree/prune-doubt.ts";
import { findCrd } from "../resources/read-crd.ts";

/** What keeps the storage version of a CRD as it is. */
export interface FreezeFindings {
  readonly name: string;
  /** Whether one of our annotations is there. */
  readonly isAnnotated: boolean;
  /** Who froze it, in words; missing where it is not frozen by the annotation. */
  readonly frozenBy?: string;
  /** Whether a policy or its binding is there, which does nothing once the annotation is off. */
  readonly hasPolicy: boolean;
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
  const hasPolicy = await unlessDenied(notes, "leftover policies", () => isPolicyGuardThere(context, name));
  const condition = await conditionOf(context, crd, notes);
  const annotations = crd.metadata.annotations ?? {};
  return {
    name,
    isAnnotated: hasFreezeAnnotation(crd) || Object.hasOwn(annotations, OWNER_ANNOTATION),
    ...(hasFreezeAnnotation(crd) ? { frozenBy: describeOwner(crd) } : {}),
    hasPolicy: hasPolicy ?? false,
    condition,
    notes,
  };
}

/** Whether there is nothing that {@link breakGlass} would take away. */
export function isNothingToLift({ isAnnotated, hasPolicy, condition }: FreezeFindings): boolean {
  return !isAnnotated && !hasPolicy && condition !== "stuck";
}

/**
 * Takes away what freezes a CRD, whichever client put it there. The annotations go first: nothing that fails after that keeps the
 * storage version frozen by them.
 * @returns what was done, a line each
 * @throws {ApiError | TransportError | KsvmError} where the annotations or the condition cannot be taken off.
 */
export async function breakGlass(context: CallContext, findings: FreezeFindings): Promise<readonly string[]> {
  const { name } = findings;
  const done: string[] = [];
  if (await liftAnnotations(context, name)) {
    done.push(`"${name}" is no longer frozen`);
  }
  if (findings.condition === "stuck") {
    done.push(await liftCondition(context, name));
  }
  if (findings.hasPolicy) {
    done.push(await sweepPolicy(context, name));
  }
  return done;
}

/** What a user is told of it; empty where storedVersions listed every version. */
export function listedAgain({ listed }: ClearedCondition): string {
  return listed.length === 0
    ? ""
    : `, and listed ${listed.join(", ")} in storedVersions again: the migration that began may have removed it, and rewritten nothing`;
}

/** A user may take their time before they confirm: what explains the condition may have begun since it was found, or ended. */
async function liftCondition(context: CallContext, name: string): Promise<string> {
  const { condition } = await inspectFreeze(context, name);
  const cleared = condition === "stuck" ? await clearCondition(context, name) : undefined;
  const what = `condition ${STORAGE_MIGRATING_CONDITION} of "${name}"`;
  return cleared === undefined
    ? `left ${what}: it has changed, or a migration explains it by now; run this again`
    : `cleared ${what}${listedAgain(cleared)}`;
}

async function liftAnnotations(context: CallContext, name: string): Promise<boolean> {
  let lifted = false;
  await updateCrd(context, name, ({ metadata: { annotations = {} } }) => {
    const found = [MIGRATING_ANNOTATION, OWNER_ANNOTATION].filter((key) => Object.hasOwn(annotations, key));
    lifted ||= found.length > 0;
    return found.length === 0 ? undefined : Object.fromEntries(found.map((key) => [key, null]));
  });
  return lifted;
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
async function sweepPolicy(context: CallContext, name: string): Promise<string> {
  const policy = `ValidatingAdmissionPolicy "${policyGuardOf(name).name}"`;
  try {
    const removal = await removePolicyGuard(context, name, () => true);
    // What counts is what is there now: another client may have written it, or put it back.
    if (removal === "kept" || (await isPolicyGuardThere(context, name))) {
      return `left ${policy}, which does nothing now: another client writes it at the same time; run this again`;
    }
    return removal === "removed" ? `removed ${policy}` : `${policy} was gone already`;
  } catch (error) {
    context.signal.throwIfAborted();
    return `left ${policy}, which does nothing now: ${messageOf(error)}`;
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

function describeOwner(crd: CustomResourceDefinition): string {
  const owner = freezeOwnerOf(crd);
  return owner === undefined
    ? "something other than ksvm"
    : `${owner.identity} (Lease "${owner.lease}") since ${owner.since}`;
}
