import type { Access } from "../old/kube/access.ts";
import { CRDS } from "../old/kube/resources.ts";
import { type RoleObject, roleOf, rulesOf, SEE_IN_TREE } from "../old/migrator/run-roles.ts";

/** A user who may check CRD files. */
export interface CheckRoleOptions {
  /** Name of the role and of the policy. */
  readonly name: string;
  /** The user's name as an API server has it. @default unknown, so that nothing can be said about that user */
  readonly username?: string | undefined;
}

/**
 * What `ksvm check -f` of files with these CRDs needs. RBAC does not tell a dry run from a write: a user who may send the dry run of a CRD may
 * change that CRD, and create others. So, for a user who is known, a ValidatingAdmissionPolicy comes with it that allows that user dry
 * runs of CRDs and nothing else.
 *
 * @param names `plural.group` of a CRD each
 */
export function rolesForCheck(
  names: readonly string[],
  { name, username }: CheckRoleOptions,
): { readonly role: RoleObject; readonly policies: readonly object[] } {
  return { role: roleForCheck(names, name), policies: username === undefined ? [] : dryRunsOnly(name, username) };
}

function roleForCheck(names: readonly string[], name: string): RoleObject {
  const wanted = names.flatMap((crdName): readonly Access[] => {
    const [resource = "", ...group] = crdName.split(".");
    return [
      { verb: "list", resource: { resource, group: group.join(".") } },
      { verb: "get", resource: CRDS, name: crdName },
      { verb: "patch", resource: CRDS, name: crdName },
    ];
  });
  // A CRD that the cluster does not have yet.
  return roleOf({ name }, rulesOf([...wanted, { verb: "create", resource: CRDS }, SEE_IN_TREE]));
}

function dryRunsOnly(name: string, username: string): readonly object[] {
  const common = { apiVersion: "admissionregistration.k8s.io/v1", metadata: { name } } as const;
  const { group, version, resource } = CRDS;
  const writes = {
    apiGroups: [group],
    apiVersions: [version],
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
