import { policyName } from "../freeze/freeze.ts";
import { type Guard, WEBHOOK_NAME } from "../freeze/rule.ts";
import { IN_TREE_GROUP } from "../migrator/in-tree.ts";
import { type Right, rightsForFreeze, rightsForRewrite } from "../migrator/rights.ts";

/*
 * The least roles of each purpose, beside the discovery that every authenticated user has. What a run asks for comes
 * from the same place as what it checks before it starts.
 */

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
  readonly leaseNamespace: string;
}

const CRDS = { group: "apiextensions.k8s.io", resource: "customresourcedefinitions" };
const SEE_IN_TREE: Right = { verb: "list", group: IN_TREE_GROUP, resource: "storageversionmigrations" };

/**
 * The roles under which `ksvm migrate` and `ksvm reencrypt` work on these resources, and on nothing else.
 * @param names `plural.group` each
 */
export function rolesForRuns(names: readonly string[], options: RunRoleOptions): readonly RoleObject[] {
  return rolesFor(
    names.flatMap((one) => rightsOfRun(one, options)),
    options.name,
  );
}

/**
 * The roles under which `ksvm reencrypt --all` writes every object there is. Which resources there are is known
 * in the cluster alone, so no right is limited to names.
 */
export function rolesForEveryResource(options: RunRoleOptions): readonly RoleObject[] {
  const rights = rightsOfRun("*.*", options).map(({ name: _, ...right }) => right);
  return rolesFor(rights, options.name);
}

/**
 * The rules of the ClusterRole `system:storage-migrator` for a controller that migrates these resources alone: all that
 * it may do with any resource, as opposed to its own.
 */
export function rulesForController(names: readonly string[]): readonly PolicyRule[] {
  const rights = names.flatMap((name): readonly Right[] => {
    const { group, resource } = resourceOf(name);
    const rewrite = ["list", "patch"].map((verb) => ({ verb, group, resource }));
    if (!isCustom(name)) return rewrite;
    const freeze = rightsForFreeze(name, policyGuard(name)).filter(
      // Its webhook guards the freeze. Policies that a killed `ksvm migrate` left are read and deleted, never written.
      ({ resource: of, verb }) => (of === CRDS.resource ? verb === "patch" : verb === "get" || verb === "delete"),
    );
    return [...rewrite, throughStatus(name), ...freeze];
  });
  return rulesOf(rights);
}

/**
 * What `ksvm check -f` of files with these CRDs needs. RBAC does not tell a dry run from a write: a user who may send
 * the dry run of a CRD may change that CRD, and create others. So, for a user who is known, a ValidatingAdmissionPolicy
 * comes with it that allows that user dry runs of CRDs and nothing else.
 *
 * @param names `plural.group` of a CRD each
 * @param username as an API server has it; `undefined` where nothing can be said about that user
 */
export function rolesForCheck(
  names: readonly string[],
  name: string,
  username: string | undefined,
): { readonly role: RoleObject; readonly policies: readonly object[] } {
  const rights = names.flatMap((crd): readonly Right[] => [
    { ...resourceOf(crd), verb: "list" },
    ...["get", "patch"].map((verb) => ({ ...CRDS, verb, name: crd })),
  ]);
  // For a CRD that the cluster does not have yet.
  const role = roleOf({ name }, rulesOf([...rights, { ...CRDS, verb: "create" }, SEE_IN_TREE]));
  return { role, policies: username === undefined ? [] : dryRunsOnly(name, username) };
}

function dryRunsOnly(name: string, username: string): readonly object[] {
  const common = { apiVersion: "admissionregistration.k8s.io/v1", metadata: { name } } as const;
  const { group, resource } = CRDS;
  const writes = {
    apiGroups: [group],
    apiVersions: ["v1"],
    resources: [resource, `${resource}/*`],
    operations: ["CREATE", "UPDATE", "DELETE"],
  };
  return [
    {
      ...common,
      kind: "ValidatingAdmissionPolicy",
      spec: {
        failurePolicy: "Fail",
        matchConstraints: { resourceRules: [writes] },
        matchConditions: [
          { name: "this-user", expression: `request.userInfo.username == ${JSON.stringify(username)}` },
        ],
        validations: [
          {
            expression: "has(request.dryRun) && request.dryRun",
            message: "this user may send dry runs of CRDs, and no writes",
          },
        ],
      },
    },
    {
      ...common,
      kind: "ValidatingAdmissionPolicyBinding",
      spec: { policyName: name, validationActions: ["Deny"] },
    },
  ];
}

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

function isCustom(name: string): boolean {
  const { group } = resourceOf(name);
  return group.includes(".") && !BUILT_IN_GROUPS.has(group);
}

/** The group and the plural that a full name stands for. */
function resourceOf(name: string): Pick<Right, "group" | "resource"> {
  const [resource = "", ...group] = name.split(".");
  return { resource, group: group.join(".") };
}

function policyGuard(crdName: string): Guard {
  return { kind: "policy", name: policyName(crdName) };
}

/** An object that its own schema rejects is written through its status. */
function throughStatus(name: string): Right {
  return { ...resourceOf(name), verb: "patch", subresource: "status" };
}

/** What a run on a resource does, by its name alone: which guard there is is not known. */
function rightsOfRun(name: string, { leaseNamespace }: RunRoleOptions): readonly Right[] {
  const { group, resource: plural } = resourceOf(name);
  const rewrite = rightsForRewrite({ group, plural }, { leaseNamespace, areServersNamed: false });
  if (isCustom(name)) {
    const webhooks = { group: "admissionregistration.k8s.io", resource: "validatingwebhookconfigurations" };
    const chooseGuard: Right = { ...webhooks, verb: "get", name: WEBHOOK_NAME };
    return [...rewrite, throughStatus(name), ...rightsForFreeze(name, policyGuard(name)), chooseGuard, SEE_IN_TREE];
  }
  const versions: Right = { verb: "list", group: "internal.apiserver.k8s.io", resource: "storageversions" };
  // A name with a dot may be that of a CRD, until it was looked up.
  const crd: readonly Right[] = group === "" ? [] : [{ ...CRDS, verb: "get", name }];
  return [...rewrite, ...crd, versions, SEE_IN_TREE];
}

/** @param wanted what the runs do, beside finding the API servers */
function rolesFor(wanted: readonly Right[], name: string): readonly RoleObject[] {
  const slices = { group: "discovery.k8s.io", resource: "endpointslices" };
  // `ksvm reencrypt` refuses what an aggregated API server stores.
  const apiServices: Right = { group: "apiregistration.k8s.io", resource: "apiservices", verb: "list" };
  const rights: readonly Right[] = [...wanted, { ...slices, verb: "list", namespace: "default" }, apiServices];
  const namespaces = new Set(rights.flatMap(({ namespace }) => namespace ?? []));
  const rulesIn = (where: string | undefined): readonly PolicyRule[] =>
    rulesOf(rights.filter(({ namespace }) => namespace === where));
  return [
    // Tells API servers apart.
    roleOf({ name }, [...rulesIn(undefined), { nonResourceURLs: ["/metrics"], verbs: ["get"] }]),
    ...[...namespaces].map((namespace) => roleOf({ name, namespace }, rulesIn(namespace))),
  ];
}

/** Rules for what is wanted, one for each resource and the verbs and names that go together. */
function rulesOf(wanted: readonly Right[]): readonly PolicyRule[] {
  const verbsOf = new Map<string, Set<string>>();
  for (const { group, name, resource, subresource, verb } of wanted) {
    const path = subresource === undefined ? resource : `${resource}/${subresource}`;
    const key = JSON.stringify([group, path, name ?? null]);
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
function roleOf(metadata: RoleObject["metadata"], rules: readonly PolicyRule[]): RoleObject {
  const kind = metadata.namespace === undefined ? "ClusterRole" : "Role";
  return { apiVersion: "rbac.authorization.k8s.io/v1", kind, metadata, rules };
}
