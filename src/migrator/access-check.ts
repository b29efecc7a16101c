import { KsvmError } from "../errors.ts";
import { type Access, describeAccess, isAllowed } from "../kube/access.ts";
import { CRDS, LEASES, POLICIES, POLICY_BINDINGS, type Resource } from "../kube/resources.ts";
import type { GuardedCrd } from "../freeze/guard.ts";
import { resourceNameOf } from "../api/migration.ts";
import { leaseNameOf } from "../lease/lease-acquire.ts";
import { isForbidden } from "../kube/failure.ts";
import type { RunContext } from "./run-context.ts";

/** What a run on a CRD does to the cluster besides rewriting objects. */
export function accessForFreeze({ crdName, guard }: GuardedCrd): readonly Access[] {
  const crd: readonly Access[] = [
    { verb: "get", resource: CRDS, name: crdName },
    { verb: "patch", resource: CRDS, name: crdName },
    { verb: "patch", resource: CRDS, subresource: "status", name: crdName },
    ...["list", "watch"].map((verb) => ({ verb, resource: CRDS, name: crdName })),
  ];
  const policy = [POLICIES, POLICY_BINDINGS].flatMap((resource) => [
    // RBAC cannot limit it to a name: the name is not known when it is asked.
    { verb: "create", resource },
    ...["get", "patch", "delete"].map((verb) => ({ verb, resource, name: guard.name })),
  ]);
  return guard.kind === "policy" ? [...crd, ...policy] : crd;
}

/** What a run on any resource does. */
export function accessForRewrite(
  resource: Pick<Resource, "group" | "resource">,
  leaseNamespace: string,
): readonly Access[] {
  const lease = { resource: LEASES, namespace: leaseNamespace };
  const name = leaseNameOf(resourceNameOf(resource));
  return [
    ...["list", "patch"].map((verb) => ({ verb, resource })),
    { ...lease, verb: "create" },
    ...["get", "patch", "delete"].map((verb) => ({ ...lease, verb, name })),
  ];
}

/**
 * Refuses a run that would be refused half way, before it changes anything.
 * @throws {KsvmError} Forbidden, naming everything that is missing.
 */
export async function assertAccess(
  { client, retrier, signal }: RunContext,
  name: string,
  wanted: readonly Access[],
): Promise<void> {
  const denied: Access[] = [];
  // One after the other: a throttled user gets answers to some of them at a time, and never to all at once.
  for (const access of wanted) {
    if (!(await retrier.run(() => isAllowed(client.transport, access, { signal }), signal))) {
      denied.push(access);
    }
  }
  if (denied.length > 0) {
    const missing = denied.map(describeAccess).join(", ");
    const remedy = `ksvm rbac ${name} prints the roles that it needs`;
    const text = `Cannot migrate "${name}": this user may not ${missing}; nothing was changed; ${remedy}`;
    throw new KsvmError("Forbidden", text);
  }
}

interface Beginning<T> {
  readonly name: string;
  /** What the run needs. */
  readonly wanted: readonly Access[];
  readonly work: () => Promise<T>;
  /** Whether `work` got to what looks for missing rights itself. @default never */
  readonly hasBegun?: () => boolean;
}

/**
 * Does what a run begins with, before it knows enough for {@link assertAccess}. Where that is forbidden, the user learns of
 * everything that is, and not of one right after the other.
 * @throws {KsvmError} Forbidden, naming everything of `wanted` that is missing; what `work` throws.
 */
export async function namingAllMissing<T>(
  context: RunContext,
  { name, wanted, work, hasBegun = () => false }: Beginning<T>,
): Promise<T> {
  try {
    return await work();
  } catch (error) {
    if (!hasBegun() && isForbidden(error)) {
      await assertAccess(context, name, wanted);
    }
    throw error;
  }
}
