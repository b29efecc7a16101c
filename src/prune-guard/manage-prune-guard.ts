import { MANAGED_BY, MANAGED_BY_LABEL } from "../api/names.ts";
import { besideHelm, isOurs } from "../api/ours.ts";
import { KsvmError } from "../errors.ts";
import { isServed } from "../kube/absent.ts";
import type { KubeObject } from "../kube/client.ts";
import { isAsWanted } from "../kube/drift.ts";
import {
  APPLY_PATCH,
  CRDS,
  MUTATING_POLICIES,
  MUTATING_POLICY_BINDINGS,
  POLICIES,
  POLICY_BINDINGS,
  type Resource,
} from "../kube/resources.ts";
import type { CallContext } from "../retry/call-context.ts";
import { type ListedAllowance, listAllowances, removeSpentAllowance } from "./allowances.ts";
import {
  PRUNE_POLICY_NAMES,
  type PruneGuardMode,
  type PruneGuardOptions,
  prunePolicies,
  restorePolicy,
} from "./prune-policies.ts";
import { readPruneGuard } from "./read-prune-guard.ts";

const FIELD_MANAGER = "ksvm-guard";

/** An object of the guard, or the place of one. */
export interface GuardObject {
  readonly resource: Resource;
  readonly name: string;
  /** Missing where the guard is not to have it. */
  readonly body?: KubeObject;
}

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
  /** `off` where a policy or its binding is missing; `changed` where one is not as this program writes it. */
  readonly state: "off" | "changed" | PruneGuardMode;
  readonly allowedUsers: readonly string[];
  /** Whether what the in-tree controller removes after a failed migration is put back. */
  readonly restores: boolean;
  /** What is missing, or not as it is to be: `resource/name`. */
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
  const options = readPruneGuard(
    live(POLICIES, PRUNE_POLICY_NAMES.unproven),
    live(POLICY_BINDINGS, PRUNE_POLICY_NAMES.unproven),
  );
  const wanted = guardObjects(options ?? { mode: "warn", allowedUsers: [] }, canRestore);
  const wrong = wanted.filter(({ body, resource, name }) => body !== undefined && !isKept(live(resource, name), body));
  const isMissing = wrong.some(({ resource, name }) => live(resource, name) === undefined);
  const restores = canRestore && options?.mode === "deny" && wrong.length === 0;
  return {
    state: isMissing || options === undefined ? "off" : wrong.length > 0 ? "changed" : options.mode,
    allowedUsers: options?.allowedUsers ?? [],
    restores,
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

/** In the order in which they are written. */
function guardObjects(options: PruneGuardOptions, canRestore: boolean): readonly GuardObject[] {
  const restore = restorePolicy(options);
  const isRestored = options.mode === "deny";
  const restoring = [
    { resource: MUTATING_POLICIES, object: restore.policy },
    { resource: MUTATING_POLICY_BINDINGS, object: restore.binding },
  ].map(({ resource, object }) => placeOf(resource, object, isRestored));
  const judging = prunePolicies(options).flatMap(({ policy, binding }) => [
    placeOf(POLICIES, policy, true),
    placeOf(POLICY_BINDINGS, binding, true),
  ]);
  return [...(canRestore ? restoring : []), ...judging];
}

function placeOf(
  resource: Resource,
  object: KubeObject & { readonly metadata: { readonly name: string } },
  isWanted: boolean,
): GuardObject {
  return { resource, name: object.metadata.name, ...(isWanted ? { body: object } : {}) };
}

/** @throws {KsvmError} Conflict unless each is ours. */
async function findAll(
  { client, retrier, signal }: CallContext,
  objects: readonly GuardObject[],
  { ours = true }: { readonly ours?: boolean } = {},
): Promise<ReadonlyMap<GuardObject, KubeObject>> {
  const all = new Map<GuardObject, KubeObject>();
  for (const object of objects) {
    const { resource, name } = object;
    const found = await retrier.run(() => client.find<KubeObject>(resource, { name }, { signal }), signal);
    if (found === undefined) {
      continue;
    }
    if (ours && !isOurs(found.metadata.labels)) {
      const text = `${nameOf(object)} exists and does not have the label ${MANAGED_BY_LABEL}=${MANAGED_BY}`;
      throw new KsvmError(
        "Conflict",
        `Cannot change the guard: ${text}, so another client wrote it; rename or delete it first`,
      );
    }
    all.set(object, found);
  }
  return all;
}

async function put(
  { client, retrier, signal }: CallContext,
  object: GuardObject,
  body: KubeObject,
  found: KubeObject | undefined,
): Promise<GuardChange> {
  const patch = { type: APPLY_PATCH, body: besideHelm(body, found) };
  const options = { fieldManager: FIELD_MANAGER, force: true, signal };
  const written = await retrier.run(() => client.patch<KubeObject>(object.resource, object, patch, options), signal);
  const isSame = found?.metadata.resourceVersion === written.metadata.resourceVersion;
  return { object: nameOf(object), result: found === undefined ? "created" : isSame ? "unchanged" : "updated" };
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

function nameOf({ resource: { resource }, name }: GuardObject): string {
  return `${resource}/${name}`;
}
