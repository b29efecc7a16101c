import { WEBHOOK_NAME } from "../../api/names.ts";
import { DEFAULT_GUARD, type GuardChoice, type GuardedCrd } from "../freeze/guard.ts";
import { policyGuardOf } from "../freeze/guard-install.ts";
import { IN_TREE_GROUP } from "../../in-tree/in-tree-migrations.ts";
import { WATCH_IDENTITIES } from "../apiservers/server-arrivals.ts";
import type { Access } from "../kube/access.ts";
import { CRDS, LEASES, STORAGE_VERSIONS } from "../kube/resources.ts";
import { leaseNameOf } from "../lease/lease-acquire.ts";
import { SEE_API_SERVICES } from "./own-api.ts";
import { accessForFreeze, accessForRewrite, SEE_THE_WEBHOOK } from "./access-check.ts";

/** One rule of rbac.authorization.k8s.io/v1. */
export interface PolicyRule {
  readonly apiGroups?: readonly string[];
  readonly resources?: readonly string[];
  readonly resourceNames?: readonly string[];
  readonly nonResourceURLs?: readonly string[];
  readonly verbs: readonly string[];
}

/** A ClusterRole, or a Role where it has a namespace. */
export interface RoleObject {
  readonly apiVersion: "rbac.authorization.k8s.io/v1";
  readonly kind: "ClusterRole" | "Role";
  readonly metadata: { readonly name: string; readonly namespace?: string };
  readonly rules: readonly PolicyRule[];
}

/** Which runs the roles are for. */
export interface RunRoleOptions {
  /** Name of every role. */
  readonly name: string;
  readonly guard: GuardChoice;
  readonly leaseNamespace: string;
  /** What the runs write objects through. @default the objects themselves */
  readonly subresource?: "status" | undefined;
}

/** What Kubernetes' own migrator did. */
export const SEE_IN_TREE: Access = {
  verb: "list",
  resource: { group: IN_TREE_GROUP, resource: "storageversionmigrations" },
};

/** Where the EndpointSlice of the API servers is. */
const ENDPOINTS_NAMESPACE = "default";
/** What RBAC takes for any resource of any group. */
const EVERY_RESOURCE = "*.*";
const RBAC_VERSION = "rbac.authorization.k8s.io/v1";

/**
 * The groups that Kubernetes itself serves and whose name has a dot: the group of a CRD always has one.
 * A test compares them with those of a real API server.
 */
const BUILT_IN_GROUPS: ReadonlySet<string> = new Set([
  "admissionregistration.k8s.io",
  "apiextensions.k8s.io",
  "apiregistration.k8s.io",
  "authentication.k8s.io",
  "authorization.k8s.io",
  "certificates.k8s.io",
  "coordination.k8s.io",
  "discovery.k8s.io",
  "events.k8s.io",
  "flowcontrol.apiserver.k8s.io",
  "internal.apiserver.k8s.io",
  "networking.k8s.io",
  "node.k8s.io",
  "rbac.authorization.k8s.io",
  "resource.k8s.io",
  "scheduling.k8s.io",
  "storage.k8s.io",
  "storagemigration.k8s.io",
]);

/**
 * The roles under which `ksvm migrate` migrates these resources, and nothing else, beside the discovery that every
 * authenticated user has. What a run asks for comes from the same place as what it checks before it starts.
 *
 * @param names `plural.group` each
 */
export function rolesForRuns(names: readonly string[], options: RunRoleOptions): readonly RoleObject[] {
  return rolesWith(
    names.flatMap((one) => accessOfRun(one, options)),
    options,
  );
}

/**
 * The roles under which `ksvm reencrypt --all` writes every object there is. Which resources there are is known
 * in the cluster alone, so no right is limited to names.
 */
export function rolesForEveryResource(options: Omit<RunRoleOptions, "guard">): readonly RoleObject[] {
  // A run that freezes nothing, on a resource of any name: its rights without the names that follow from it.
  const wanted = accessOfRun(EVERY_RESOURCE, { ...options, guard: DEFAULT_GUARD });
  return rolesWith(
    wanted.map(({ name: _name, ...access }) => access),
    options,
  );
}

/** @param wanted what the runs do, beside finding the API servers */
function rolesWith(wanted: readonly Access[], { name }: Pick<RunRoleOptions, "name">): readonly RoleObject[] {
  const inNamespaces = new Map<string, Access[]>();
  for (const access of [...wanted, ...accessToApiServers()].filter(({ namespace }) => namespace !== undefined)) {
    const { namespace = "" } = access;
    inNamespaces.set(namespace, [...(inNamespaces.get(namespace) ?? []), access]);
  }
  const clusterWide = rulesOf(wanted.filter(({ namespace }) => namespace === undefined));
  return [
    // Tells API servers behind one address apart.
    roleOf({ name }, [...clusterWide, { nonResourceURLs: ["/metrics"], verbs: ["get"] }]),
    ...[...inNamespaces].map(([namespace, accesses]) => roleOf({ name, namespace }, rulesOf(accesses))),
  ];
}

/**
 * The rules of the ClusterRole `system:storage-migrator` for a controller that migrates these resources alone: all that it may do
 * with any resource, as opposed to its own.
 */
export function rulesForController(names: readonly string[]): readonly PolicyRule[] {
  const rewrite = names.flatMap((name) => ["list", "patch"].map((verb) => ({ verb, resource: resourceOfName(name) })));
  const crds = names
    .filter(isCustom)
    .flatMap((crdName): readonly Access[] => [
      { verb: "patch", resource: CRDS, name: crdName },
      { verb: "patch", resource: CRDS, subresource: "status", name: crdName },
      ...accessForFreeze({ crdName, guard: policyGuardOf(crdName) }).filter(isSweep),
    ]);
  return rulesOf([...rewrite, ...crds]);
}

/** What `ksvm migrate` left behind when it was killed is read and deleted, never written. */
function isSweep({ resource, verb }: Access): boolean {
  return resource.resource.startsWith("validatingadmissionpolic") && (verb === "get" || verb === "delete");
}

/** What a run takes into account where it may read it. */
function accessOfRun(name: string, options: Omit<RunRoleOptions, "name">): readonly Access[] {
  const needed = accessNeededFor(name, options);
  if (isCustom(name)) {
    return [...needed, SEE_IN_TREE];
  }
  const { group, resource } = resourceOfName(name);
  const storageVersion = `${group === "" ? "core" : group}.${resource}`;
  // `ksvm reencrypt` leaves an aggregated API server alone: it has a storage of its own.
  return [...needed, { verb: "get", resource: STORAGE_VERSIONS, name: storageVersion }, SEE_API_SERVICES, SEE_IN_TREE];
}

/** What a run on a resource cannot do without, by its name alone: which guard there is may not be known. */
export function accessNeededFor(
  name: string,
  { guard, leaseNamespace, subresource }: Omit<RunRoleOptions, "name">,
): readonly Access[] {
  // Beside what it checks: whether another run on this resource lives.
  const lease: Access = { verb: "list", resource: LEASES, namespace: leaseNamespace, name: leaseNameOf(name) };
  const rewrite = [...accessForRewrite(resourceOfName(name), { leaseNamespace, subresource }), lease];
  if (isCustom(name)) {
    return [...rewrite, ...guardsOf(name, guard).flatMap(accessForFreeze), ...accessToWebhook(guard)];
  }
  // A name with a dot may be that of a CRD, until it was looked up.
  const crd: readonly Access[] = name.includes(".") ? [{ verb: "get", resource: CRDS, name }] : [];
  return [...rewrite, ...crd];
}

function guardsOf(crdName: string, guard: GuardChoice): readonly GuardedCrd[] {
  const webhook: GuardedCrd = { crdName, guard: { kind: "webhook", name: WEBHOOK_NAME } };
  return guard === "webhook" ? [webhook] : [{ crdName, guard: policyGuardOf(crdName) }];
}

/** To choose a guard by whether it is installed. */
function accessToWebhook(guard: GuardChoice): readonly Access[] {
  return guard === "auto" ? [SEE_THE_WEBHOOK] : [];
}

/** Who the API servers are: each has to show the storage version. */
function accessToApiServers(): readonly Access[] {
  const slices = { group: "discovery.k8s.io", resource: "endpointslices" };
  return [...WATCH_IDENTITIES, { verb: "list", resource: slices, namespace: ENDPOINTS_NAMESPACE }];
}

/** Rules for what is wanted, one for each resource and the verbs and names that go together. */
export function rulesOf(wanted: readonly Access[]): readonly PolicyRule[] {
  const verbsOf = new Map<string, Set<string>>();
  for (const { resource, subresource, name, verb } of wanted) {
    const path = subresource === undefined ? resource.resource : `${resource.resource}/${subresource}`;
    const key = JSON.stringify([resource.group, path, name ?? null]);
    verbsOf.set(key, (verbsOf.get(key) ?? new Set()).add(verb));
  }
  const namesOf = new Map<string, string[]>();
  for (const [key, verbs] of verbsOf) {
    const [group, path, name] = JSON.parse(key) as [string, string, string | null];
    const rule = JSON.stringify([group, path, [...verbs], name === null]);
    namesOf.set(rule, [...(namesOf.get(rule) ?? []), ...(name === null ? [] : [name])]);
  }
  return [...namesOf].map(([key, resourceNames]) => {
    const [group, path, verbs] = JSON.parse(key) as [string, string, readonly string[]];
    const rule = { apiGroups: [group], resources: [path], verbs };
    return resourceNames.length === 0 ? rule : { ...rule, resourceNames };
  });
}

/** A Role where the metadata has a namespace, else a ClusterRole. */
export function roleOf(metadata: RoleObject["metadata"], rules: readonly PolicyRule[]): RoleObject {
  const kind = metadata.namespace === undefined ? "ClusterRole" : "Role";
  return { apiVersion: RBAC_VERSION, kind, metadata, rules };
}

/** The group and the plural that a full name stands for. */
function resourceOfName(name: string): { readonly group: string; readonly resource: string } {
  const [resource = "", ...group] = name.split(".");
  return { resource, group: group.join(".") };
}

function isCustom(name: string): boolean {
  const { group } = resourceOfName(name);
  return group.includes(".") && !BUILT_IN_GROUPS.has(group);
}
