import {
  CRD_FIELD_MANAGER,
  MANAGED_BY,
  MANAGED_BY_LABEL,
  MIGRATING_ANNOTATION,
  OWNER_ANNOTATION,
} from "../api/names.ts";
import type { FreezePolicy } from "../freeze/freeze-policy.ts";

/** Name of the policy and of its binding. */
export const WARN_POLICY_NAME = "ksvm-unfreeze-warning";

/** Every write of this program to a CRD names its field manager; what it takes off is no surprise to it. */
const BY_KSVM = `(has(request.options.fieldManager) && request.options.fieldManager == "${CRD_FIELD_MANAGER}")`;

const OWNER = `(${hasAnnotation("oldObject", OWNER_ANNOTATION)} ? oldObject.metadata.annotations["${OWNER_ANNOTATION}"] : "by an unknown owner")`;

const WARNING = [
  '"the freeze of CustomResourceDefinition " + oldObject.metadata.name',
  '" is lifted while its objects are being migrated: "',
  OWNER,
  '"; the migration ends without pruning status.storedVersions and does not start again by itself; see ksvm status "',
  "oldObject.metadata.name",
].join(" + ");

/**
 * Warns a user who takes the freeze annotation off a CRD, and leaves it in the audit log. It is a policy and not part of
 * the webhook because breaking the glass must work while the webhook is down; it never denies: its actions are to warn
 * and to audit, and where it cannot be evaluated it is ignored.
 */
export function warnPolicy(): FreezePolicy {
  const common = {
    apiVersion: "admissionregistration.k8s.io/v1",
    metadata: { name: WARN_POLICY_NAME, labels: { [MANAGED_BY_LABEL]: MANAGED_BY } },
  } as const;
  return {
    policy: {
      ...common,
      kind: "ValidatingAdmissionPolicy",
      spec: {
        failurePolicy: "Ignore",
        matchConstraints: {
          matchPolicy: "Equivalent",
          namespaceSelector: {},
          objectSelector: {},
          resourceRules: [
            {
              apiGroups: ["apiextensions.k8s.io"],
              apiVersions: ["v1"],
              operations: ["UPDATE"],
              resources: ["customresourcedefinitions"],
              scope: "Cluster",
            },
          ],
        },
        matchConditions: [
          { name: "was-frozen", expression: hasAnnotation("oldObject", MIGRATING_ANNOTATION) },
          { name: "not-by-ksvm", expression: `!${BY_KSVM}` },
        ],
        validations: [
          {
            expression: hasAnnotation("object", MIGRATING_ANNOTATION),
            message: "the freeze is lifted while the objects are being migrated",
            messageExpression: WARNING,
          },
        ],
      },
    },
    binding: {
      ...common,
      kind: "ValidatingAdmissionPolicyBinding",
      spec: { policyName: WARN_POLICY_NAME, validationActions: ["Warn", "Audit"] },
    },
  };
}

function hasAnnotation(object: "oldObject" | "object", name: string): string {
  return `(has(${object}.metadata.annotations) && "${name}" in ${object}.metadata.annotations)`;
}
