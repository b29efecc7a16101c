import { MANAGED_BY, MANAGED_BY_LABEL, MIGRATING_ANNOTATION, OWNER_ANNOTATION } from "../api/names.ts";
import type { FreezePolicy } from "../old/freeze/freeze-policy.ts";
import { bindEverywhere, matchCrdUpdates } from "../old/freeze/match-crd-updates.ts";

/** Name of the policy and of its binding. */
export const WARN_POLICY_NAME = "ksvm-unfreeze-warning";

/** Then nothing is left to migrate, and ksvm itself takes the freeze off. By its field manager it cannot be told: anyone may use the name. */
const IS_PRUNED = "(has(object.status.storedVersions) && object.status.storedVersions.size() == 1)";

const OWNER = `(${hasAnnotation("oldObject", OWNER_ANNOTATION)} ? oldObject.metadata.annotations["${OWNER_ANNOTATION}"] : "by an unknown owner")`;

const WARNING = [
  '"the freeze of CustomResourceDefinition " + oldObject.metadata.name',
  '" is lifted while its objects are being migrated: "',
  OWNER,
  '"; the migration ends without pruning status.storedVersions and does not start again by itself; see ksvm status "',
  "oldObject.metadata.name",
].join(" + ");

/**
 * Warns a user who takes the freeze annotation off a CRD before its storedVersions are pruned, and leaves it in the audit log. It is a policy and not part of
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
        paramKind: undefined,
        // An update of the status may change annotations as well.
        matchConstraints: matchCrdUpdates(["customresourcedefinitions", "customresourcedefinitions/status"]),
        matchConditions: [
          { name: "was-frozen", expression: hasAnnotation("oldObject", MIGRATING_ANNOTATION) },
          { name: "not-pruned-yet", expression: `!${IS_PRUNED}` },
        ],
        validations: [
          {
            expression: hasAnnotation("object", MIGRATING_ANNOTATION),
            message: "the freeze is lifted while the objects are being migrated",
            messageExpression: WARNING,
          },
        ],
        auditAnnotations: undefined,
      },
    },
    binding: {
      ...common,
      kind: "ValidatingAdmissionPolicyBinding",
      spec: { ...bindEverywhere(WARN_POLICY_NAME), validationActions: ["Warn", "Audit"] },
    },
  };
}

function hasAnnotation(object: "oldObject" | "object", name: string): string {
  return `(has(${object}.metadata.annotations) && "${name}" in ${object}.metadata.annotations)`;
}
