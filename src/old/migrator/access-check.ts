import { KsvmError } from "../../errors.ts";
import { METRICS_PATH } from "../apiservers/metric-lines.ts";
import { WATCH_IDENTITIES } from "../apiservers/server-arrivals.ts";
import { type Access, describeAccess, isAllowed, type PathAccess } from "../kube/access.ts";
import { CRDS, LEASES, POLICIES, POLICY_BINDINGS, type Resource, WEBHOOK_CONFIGURATIONS } from "../kube/resources.ts";
import { type GuardedCrd, type GuardIdentity, WEBHOOK_GUARD } from "../freeze/guard.ts";
import { resourceNameOf } from "../../api/migration.ts";
import { leaseNameOf } from "../lease/lease-acquire.ts";
import { isForbidden } from "../kube/failure.ts";
import type { CallContext } from "../retry/call-context.ts";
import { mapInFlight } from "../retry/map-in-flight.ts";
import { SEE_API_SERVICES } from "./own-api.ts";
import type { MigrationOptions, RunContext } from "./run-context.ts";

/** To choose a guard by whether the webhook is installed. */
export const SEE_THE_WEBHOOK: Access = { verb: "get", resource: WEBHOOK_CONFIGURATIONS, name: WEBHOOK_GUARD.name };

/** What a run on a CRD does to the cluster besides rewriting objects. */
export function accessForFreeze({ crdName, guard }: GuardedCrd): readonly Access[] {
  const crd: readonly Access[] = [
    { verb: "get", resource: CRDS, name: crdName },
    { verb: "patch", resource: CRDS, name: crdName },
    { verb: "patch", resource: CRDS, subresource: "status", name: crdName },
    ...["list", "watch"].map((verb) => ({ verb, resource: CRDS, name: crdName })),
    SEE_API_SERVICES,
  ];
  return guard.kind === "policy" ? [...crd, ...accessForPolicy(guard)] : crd;
}

/** What a run does to its policy. */
export function accessForPolicy({ name }: GuardIdentity): readonly Access[] {
  return [POLICIES, POLICY_BINDINGS].flatMap((resource) => [
    // RBAC cannot limit it to a name: the name is not known when it is asked.
    { verb: "create", resource },
    ...["get", "patch", "delete"].map((verb) => ({ verb, resource, name })),
  ]);
}

/** What writing objects as they are takes. */
export function accessForWrites(
  resource: Pick<Resource, "group" | "resource">,
  subresource: MigrationOptions["subresource"],
): Access {
  return { verb: "patch", resource, ...(subresource === undefined ? {} : { subresource }) };
}

/** What a run on any resource does. */
export function accessForRewrite(
  resource: Pick<Resource, "group" | "resource">,
  { leaseNamespace, subresource }: Pick<MigrationOptions, "leaseNamespace" | "subresource">,
): readonly Access[] {
  const lease = { resource: LEASES, namespace: leaseNamespace };
  const name = leaseNameOf(resourceNameOf(resource));
  return [
    { verb: "list", resource },
    accessForWrites(resource, subresource),
    { ...lease, verb: "create" },
    ...["get", "patch", "delete"].map((verb) => ({ ...lease, verb, name })),
  ];
}

/** What the evidence of how API servers encrypt takes. */
export function accessForEncryption({ encryption }: Pick<RunContext, "encryption">): readonly PathAccess[] {
  return encryption?.readsMetrics === true ? [{ verb: "get", path: METRICS_PATH }] : [];
}

/** What seeing takes which API servers come and go. Where a user names them, a run can do without. */
export function accessForArrivals({ areServersNamed }: Pick<RunContext, "areServersNamed">): readonly Access[] {
  return areServersNamed === true ? [] : WATCH_IDENTITIES;
}

/** Reviews that are asked for at the same time. */
const REVIEWS_IN_FLIGHT = 24;

/** What of this the user may not do. */
export async function missingOf<One extends Access | PathAccess>(
  { client, retrier, signal }: CallContext,
  wanted: readonly One[],
): Promise<readonly One[]> {
  // Each is asked again by itself: a throttled user gets answers to some of them at a time, and never to all at once.
  const isGiven = (access: One): Promise<boolean> =>
    retrier.run(() => isAllowed(client.transport, access, { signal }), signal);
  const given = await mapInFlight(wanted, isGiven, { most: REVIEWS_IN_FLIGHT, signal });
  return wanted.filter((_, index) => given[index] !== true);
}

/**
 * Refuses a run that would be refused half way, before it changes anything.
 * @param besides is missing as well, and alone no reason to refuse the run
 * @throws {KsvmError} Forbidden, naming everything that is missing.
 */
export async function assertAccess(
  context: CallContext,
  name: string,
  { wanted, besides = [] }: { readonly wanted: readonly (Access | PathAccess)[]; readonly besides?: readonly Access[] },
): Promise<void> {
  const denied = await missingOf(context, wanted);
  if (denied.length > 0) {
    const missing = textOfMissing([...denied, ...besides]);
    throw new KsvmError("Forbidden", `Cannot migrate "${name}": ${missing}; nothing was changed; ${remedyFor(name)}`);
  }
}

/** What to do about rights that are missing. */
export function remedyFor(name: string): string {
  return `ksvm rbac ${name} prints the roles that it needs`;
}

/** What is missing. */
export function textOfMissing(missing: readonly (Access | PathAccess)[]): string {
  const rights = [...new Set(missing.map(describeAccess))].join(", ");
  const isEither = missing.some(isSeeing) && missing.some(isAboutPolicies);
  const either = `; where the webhook is installed, ${describeAccess(SEE_THE_WEBHOOK)} stands for the rights on policies`;
  return `this user may not ${rights}${isEither ? either : ""}`;
}

function isSeeing(access: Access | PathAccess): boolean {
  return "resource" in access && access.resource.resource === WEBHOOK_CONFIGURATIONS.resource;
}

function isAboutPolicies(access: Access | PathAccess): boolean {
  return (
    "resource" in access &&
    [POLICIES, POLICY_BINDINGS].some((policies) => policies.resource === access.resource.resource)
  );
}

interface Beginning<T> {
  readonly name: string;
  /** What the run needs. */
  readonly wanted: () => Promise<readonly Access[]>;
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
  context: CallContext,
  { name, wanted, work, hasBegun = () => false }: Beginning<T>,
): Promise<T> {
  try {
    return await work();
  } catch (error) {
    if (!hasBegun() && isForbidden(error)) {
      await assertAccess(context, name, { wanted: await wanted() });
    }
    throw error;
  }
}
