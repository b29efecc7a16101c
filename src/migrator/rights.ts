import { KsvmError } from "../errors.ts";
import type { Guard } from "../freeze/rule.ts";
import type { Client } from "../kube/client.ts";
import { type Resource, resourceName } from "../kube/objects.ts";
import { retry } from "../kube/retry.ts";
import { leaseName } from "./run-lease.ts";

/** One thing that a user may or may not do. */
export interface Right {
  readonly verb: string;
  readonly group: string;
  readonly resource: string;
  readonly subresource?: string;
  /** @default all namespaces */
  readonly namespace?: string;
  /** @default all names */
  readonly name?: string;
}

/** What a run on a CRD takes besides {@link rightsForRewrite}. */
export function rightsForFreeze(crdName: string, guard: Guard): readonly Right[] {
  const crd = { group: "apiextensions.k8s.io", resource: "customresourcedefinitions", name: crdName };
  const policies = ["validatingadmissionpolicies", "validatingadmissionpolicybindings"].flatMap((resource) => {
    const policy = { group: "admissionregistration.k8s.io", resource };
    return [
      // RBAC cannot limit it to a name: the name is not known when it is asked.
      { ...policy, verb: "create" },
      ...["get", "patch", "delete"].map((verb) => ({ ...policy, verb, name: guard.name })),
    ];
  });
  return [
    ...["get", "list", "watch", "patch"].map((verb) => ({ ...crd, verb })),
    { ...crd, verb: "patch", subresource: "status" },
    ...(guard.kind === "policy" ? policies : []),
  ];
}

/** What a dry run takes. */
export function rightsForDryRun({ group, plural }: Pick<Resource, "group" | "plural">): readonly Right[] {
  return ["list", "patch"].map((verb) => ({ verb, group, resource: plural }));
}

/** What a run on any resource takes. */
export function rightsForRewrite(
  { group, plural }: Pick<Resource, "group" | "plural">,
  { areServersNamed, leaseNamespace }: { readonly leaseNamespace: string; readonly areServersNamed: boolean },
): readonly Right[] {
  const leases = { group: "coordination.k8s.io", resource: "leases" };
  const lease = { ...leases, namespace: leaseNamespace };
  const name = leaseName(resourceName({ group, plural }));
  return [
    ...rightsForDryRun({ group, plural }),
    { ...lease, verb: "create" },
    ...["get", "patch", "delete"].map((verb) => ({ ...lease, verb, name })),
    // The identity Leases say how many API servers there are.
    ...(areServersNamed ? [] : [{ ...leases, namespace: "kube-system", verb: "list" }]),
  ];
}

/**
 * Refuses a run that would be refused half way, before it changes anything.
 * @throws {KsvmError} Forbidden, naming everything that is missing
 */
export async function assertRights(
  client: Client,
  resource: string,
  wanted: readonly Right[],
  signal: AbortSignal,
): Promise<void> {
  const given = await Promise.all(wanted.map((right) => isGiven(client, right, signal)));
  const missing = wanted.filter((_, index) => given[index] !== true);
  if (missing.length === 0) return;
  const rights = [...new Set(missing.map(describe))].join(", ");
  const text = `this user may not ${rights}; nothing was changed; ksvm rbac ${resource} prints the roles that it needs`;
  throw new KsvmError("Forbidden", `Cannot migrate "${resource}": ${text}`);
}

/** Every authenticated user may ask this of itself. */
async function isGiven(client: Client, right: Right, signal: AbortSignal): Promise<boolean> {
  const path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
  const body = { spec: { resourceAttributes: right } };
  const review = (): Promise<{ status?: { allowed?: boolean } }> => client.create(path, body, { signal });
  return (await retry(client, review, { signal })).status?.allowed === true;
}

/** `patch customresourcedefinitions.apiextensions.k8s.io/status`, as errors of RBAC spell it. */
function describe({ group, namespace, resource, subresource, verb }: Right): string {
  const path = subresource === undefined ? "" : `/${subresource}`;
  const scope = namespace === undefined ? "" : ` in namespace "${namespace}"`;
  return `${verb} ${resource}${group === "" ? "" : `.${group}`}${path}${scope}`;
}
