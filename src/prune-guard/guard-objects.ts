import { MANAGED_BY, MANAGED_BY_LABEL } from "../api/names.ts";
import { isOurs } from "../api/ours.ts";
import { KsvmError } from "../errors.ts";
import type { KubeObject } from "../kube/client.ts";
import {
  MUTATING_POLICIES,
  MUTATING_POLICY_BINDINGS,
  POLICIES,
  POLICY_BINDINGS,
  type Resource,
} from "../kube/resources.ts";
import type { CallContext } from "../retry/call-context.ts";
import { type PruneGuardOptions, prunePolicies, restorePolicy } from "./prune-policies.ts";

/** An object of the guard, or the place of one. */
export interface GuardObject {
  readonly resource: Resource;
  readonly name: string;
  /** Missing where the guard is not to have it. */
  readonly body?: KubeObject;
}

/** In the order in which they are written. */
export function guardObjects(options: PruneGuardOptions, canRestore: boolean): readonly GuardObject[] {
  const restoring = canRestore ? restoringObjects(options, { isWanted: options.mode === "deny" }) : [];
  const judging = prunePolicies(options).flatMap(({ policy, binding }) => [
    placeOf(POLICIES, policy, true),
    placeOf(POLICY_BINDINGS, binding, true),
  ]);
  return [...restoring, ...judging];
}

/** What puts versions back. */
export function restoringObjects(
  options: PruneGuardOptions,
  { isWanted }: { readonly isWanted: boolean },
): readonly GuardObject[] {
  const { policy, binding } = restorePolicy(options);
  return [placeOf(MUTATING_POLICIES, policy, isWanted), placeOf(MUTATING_POLICY_BINDINGS, binding, isWanted)];
}

function placeOf(
  resource: Resource,
  object: KubeObject & { readonly metadata: { readonly name: string } },
  isWanted: boolean,
): GuardObject {
  return { resource, name: object.metadata.name, ...(isWanted ? { body: object } : {}) };
}

/**
 * Those that are there.
 * @param ours whether each has to be ours
 * @throws {KsvmError} Conflict unless each is, where it has to; {ApiError | TransportError}
 */
export async function findAll(
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

/** `resource/name`. */
export function nameOf({ resource: { resource }, name }: GuardObject): string {
  return `${resource}/${name}`;
}
