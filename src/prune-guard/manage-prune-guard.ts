import { besideHelm } from "../api/ours.ts";
import { CONFLICT_PACE, MAX_CONFLICTS } from "../freeze/freeze.ts";
import { isServed } from "../kube/absent.ts";
import { isConflict, type KubeObject } from "../kube/client.ts";
import { isAsWanted, mergePatchTo } from "../kube/drift.ts";
import { isInvalid } from "../kube/errors.ts";
import {
  APPLY_PATCH,
  CRDS,
  MERGE_PATCH,
  MUTATING_POLICIES,
  POLICIES,
  POLICY_BINDINGS,
  type Resource,
} from "../kube/resources.ts";
import type { CallContext } from "../retry/call-context.ts";
import { type ListedAllowance, listAllowances, removeSpentAllowance } from "./allowances.ts";
import { findAll, type GuardObject, guardObjects, nameOf, restoringObjects } from "./guard-objects.ts";
import { PRUNE_POLICY_NAMES, type PruneGuardMode, type PruneGuardOptions } from "./prune-policies.ts";
import { readPruneGuard } from "./read-prune-guard.ts";

const FIELD_MANAGER = "ksvm-guard";
/** What `ksvm guard enable` stands for without flags. */
const DEFAULTS: PruneGuardOptions = { mode: "warn", allowedUsers: [] };

/** What became of one object. */
export interface GuardChange {
  /** `resource/name`. */
  readonly object: string;
  readonly result: "created" | "updated" | "unchanged" | "deleted" | "no longer allows a prune";
}

/** What came of enabling the guard. */
export interface EnabledGuard {
  readonly changes: readonly GuardChange[];
  /** Whether what the in-tree controller removes after a failed migration is put back; `false` where no API for that is served. */
  readonly restores: boolean;
}

/**
 * Puts the guard in force, or changes its mode. What is put back comes before what is denied, and a policy before its binding, so
 * that no update in between is denied that would not be later.
 * @throws {KsvmError} Conflict where an object of that name is not ours, before anything was changed; {ApiError | TransportError}
 */
export async function enablePruneGuard(context: CallContext, options: PruneGuardOptions): Promise<EnabledGuard> {
  const canRestore = await servesMutatingPolicies(context);
  const wanted = guardObjects(options, canRestore);
  const found = await findAll(context, wanted);
  const changes: GuardChange[] = [];
  for (const object of wanted) {
    const change = await (object.body === undefined
      ? remove(context, object, found.get(object))
      : put(context, object, object.body, found.get(object)));
    changes.push(...(change === undefined ? [] : [change]));
  }
  return {
    changes: [...changes, ...(await sweepAllowances(context))],
    restores: canRestore && options.mode === "deny",
  };
}

async function sweepAllowances(context: CallContext): Promise<readonly GuardChange[]> {
  const swept: GuardChange[] = [];
  for (const { crd, state } of await listAllowances(context)) {
    if (state === "spent" && (await removeSpentAllowance(context, crd))) {
      swept.push({ object: `${CRDS.resource}/${crd}`, result: "no longer allows a prune" });
    }
  }
  return swept;
}

/**
 * Takes the guard away, bindings first.
 * @throws as {@link enablePruneGuard}
 */
export async function disablePruneGuard(context: CallContext): Promise<readonly GuardChange[]> {
  const places = guardObjects({ mode: "deny", allowedUsers: [] }, await servesMutatingPolicies(context));
  const found = await findAll(context, places);
  const changes: GuardChange[] = [];
  for (const object of places.toReversed()) {
    const change = await remove(context, object, found.get(object));
    changes.push(...(change === undefined ? [] : [change]));
  }
  return changes;
}

/** The guard as a cluster has it. */
export interface PruneGuardStatus {
  /**
   * `off` where neither the policy that judges removals nor its binding is there; `changed` where an object of the guard is missing or not as this
   * program writes it, while others may still deny.
   */
  readonly state: "off" | "changed" | PruneGuardMode;
  /** What the binding says, or the policy where there is no binding; missing where the guard is off. */
  readonly mode?: PruneGuardMode;
  readonly allowedUsers: readonly string[];
  /** Whether what the in-tree controller removes after a failed migration is put back. */
  readonly restores: boolean;
  /** What is missing, left over from another mode, or not as it is to be: `resource/name`. */
  readonly objects: readonly string[];
  /** The annotations that allow a prune. */
  readonly allowances: readonly ListedAllowance[];
}

/** The guard as it is. @throws {ApiError | TransportError} */
export async function pruneGuardStatus(context: CallContext): Promise<PruneGuardStatus> {
  const canRestore = await servesMutatingPolicies(context);
  const places = guardObjects({ mode: "deny", allowedUsers: [] }, canRestore);
  const found = await findAll(context, places, { ours: false });
  const live = (resource: Resource, name: string): KubeObject | undefined =>
    [...found].find(([object]) => object.resource === resource && object.name === name)?.[1];
  const options = readPruneGuard({
    policy: live(POLICIES, PRUNE_POLICY_NAMES.unproven),
    binding: live(POLICY_BINDINGS, PRUNE_POLICY_NAMES.unproven),
    inTree: live(POLICIES, PRUNE_POLICY_NAMES.inTree),
  });
  const isRight = ({ body, resource, name }: GuardObject): boolean =>
    body === undefined ? live(resource, name) === undefined : isKept(live(resource, name), body);
  const wrong = guardObjects(options ?? DEFAULTS, canRestore).filter((object) => !isRight(object));
  return {
    state: options === undefined ? "off" : wrong.length > 0 ? "changed" : options.mode,
    ...(options && { mode: options.mode }),
    allowedUsers: options?.allowedUsers ?? [],
    restores: canRestore && options !== undefined && restoringObjects(options, { isWanted: true }).every(isRight),
    objects: wrong.map(nameOf),
    allowances: await listAllowances(context),
  };
}

function isKept(live: KubeObject | undefined, body: KubeObject): boolean {
  return isAsWanted(live, besideHelm(body, live));
}

function servesMutatingPolicies({ client, retrier, signal }: CallContext): Promise<boolean> {
  return retrier.run(() => isServed(client.transport, MUTATING_POLICIES, { signal }), signal);
}

/**
 * Writes an object. The API server itself may write it at the same time: kube-controller-manager notes in the status what it finds in each new spec.
 * @throws {KsvmError} Conflict where another client writes an object of that name at the same time; {ApiError | TransportError}
 */
async function put(
  context: CallContext,
  object: GuardObject,
  body: KubeObject,
  first: KubeObject | undefined,
): Promise<GuardChange> {
  const pace = context.retrier.pace(CONFLICT_PACE);
  let found = first;
  for (let conflicts = 0; ; conflicts++) {
    await pace.turn(context.signal);
    try {
      const written = await writeOver(context, object, besideHelm(body, found), found);
      const isSame = first?.metadata.resourceVersion === written.metadata.resourceVersion;
      return { object: nameOf(object), result: first === undefined ? "created" : isSame ? "unchanged" : "updated" };
    } catch (error) {
      if (!isConflict(error) || conflicts >= MAX_CONFLICTS) {
        throw error;
      }
      found = (await findAll(context, [object])).get(object);
    }
  }
}

/**
 * Applies an object. Server-side apply leaves alone what others added, such as the action of another mode: where the API server refuses both
 * together, or takes them, the spec is replaced.
 */
async function writeOver(
  context: CallContext,
  object: GuardObject,
  wanted: KubeObject,
  found: KubeObject | undefined,
): Promise<KubeObject> {
  const applied = await applyOver(context, object, wanted, found);
  if (isAsWanted(applied, wanted)) {
    return applied;
  }
  const replaced = await replaceSpec(context, object, wanted, applied);
  return isAsWanted(replaced, wanted) ? replaced : applyOver(context, object, wanted, undefined);
}

/** @returns `found` where the API server does not take what is wanted beside what others added to it */
async function applyOver(
  { client, retrier, signal }: CallContext,
  object: GuardObject,
  wanted: KubeObject,
  found: KubeObject | undefined,
): Promise<KubeObject> {
  const patch = { type: APPLY_PATCH, body: wanted };
  const options = { fieldManager: FIELD_MANAGER, force: true, signal };
  try {
    return await retrier.run(() => client.patch<KubeObject>(object.resource, object, patch, options), signal);
  } catch (error) {
    if (found === undefined || !isInvalid(error)) {
      throw error;
    }
    return found;
  }
}

function replaceSpec(
  { client, retrier, signal }: CallContext,
  object: GuardObject,
  wanted: KubeObject,
  { metadata: { resourceVersion } }: KubeObject,
): Promise<KubeObject> {
  const { spec } = wanted as KubeObject & { readonly spec?: unknown };
  const patch = { type: MERGE_PATCH, body: { metadata: { resourceVersion }, spec: mergePatchTo(spec) } };
  const options = { fieldManager: FIELD_MANAGER, signal };
  return retrier.run(() => client.patch<KubeObject>(object.resource, object, patch, options), signal);
}

async function remove(
  { client, retrier, signal }: CallContext,
  object: GuardObject,
  found: KubeObject | undefined,
): Promise<GuardChange | undefined> {
  if (found === undefined) {
    return undefined;
  }
  const { uid, resourceVersion } = found.metadata;
  const preconditions = {
    ...(uid === undefined ? {} : { uid }),
    ...(resourceVersion === undefined ? {} : { resourceVersion }),
  };
  await retrier.run(() => client.delete(object.resource, object, { preconditions, signal }), signal);
  return { object: nameOf(object), result: "deleted" };
}
