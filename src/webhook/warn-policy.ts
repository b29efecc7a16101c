import { MANAGED_BY, MANAGED_BY_LABEL } from "../api/names.ts";
import { MIGRATING, OWNER } from "../freeze/rule.ts";
import type { WantedObject } from "./object-keeper.ts";

type PolicyObject = WantedObject & {
  readonly metadata: { readonly labels: Readonly<Record<string, string>> };
  readonly spec: object;
};

/** Name of the policy and of its binding. */
export const WARN_POLICY_NAME = "ksvm-unfreeze-warning";

/**
 * Then nothing is left to migrate, and ksvm itself takes the freeze off. By its field manager it cannot be told: anyone
 * may use the name.
 */
const IS_PRUNED = "(has(object.status.storedVersions) && object.status.storedVersions.size() == 1)";

const WAS_OWNER = `(${hasAnnotation("oldObject", OWNER)} ? oldObject.metadata.annotations["${OWNER}"] : "by an unknown owner")`;

const WARNING = [
  '"the freeze of CustomResourceDefinition " + oldObject.metadata.name',
  '" is lifted while its objects are being migrated: "',
  WAS_OWNER,
  '"; the migration ends without pruning status.storedVersions and does not start again by itself; see ksvm status "',
  "oldObject.metadata.name",
].join(" + ");

/**
 * Warns a user who takes the freeze annotation off a CRD before its storedVersions are pruned, and leaves it in the
 * audit log. It is a policy and not part of the webhook because breaking the glass must work while the webhook is down;
 * it never denies: its actions are to warn and to audit, and where it cannot be evaluated it is ignored.
 *
 * What is to be absent is written out, so that what another client adds to exempt a CRD is a difference from what is
 * wanted.
 */
export function warnPolicy(): Readonly<Record<"policy" | "binding", PolicyObject>> {
  const apiVersion = "admissionregistration.k8s.io/v1";
  const metadata = { name: WARN_POLICY_NAME, labels: { [MANAGED_BY_LABEL]: MANAGED_BY } };
  const rule = {
    apiGroups: ["apiextensions.k8s.io"],
    apiVersions: ["v1"],
    operations: ["UPDATE"],
    // An update of the status may change annotations as well.
    resources: ["customresourcedefinitions", "customresourcedefinitions/status"],
    scope: "Cluster",
    resourceNames: undefined,
  };
  const policySpec = {
    failurePolicy: "Ignore",
    paramKind: undefined,
    matchConstraints: {
      matchPolicy: "Equivalent",
      namespaceSelector: {},
      objectSelector: {},
      resourceRules: [rule],
      excludeResourceRules: undefined,
    },
    matchConditions: [
      { name: "was-frozen", expression: hasAnnotation("oldObject", MIGRATING) },
      { name: "not-pruned-yet", expression: `!${IS_PRUNED}` },
    ],
    validations: [
      {
        expression: hasAnnotation("object", MIGRATING),
        message: "the freeze is lifted while the objects are being migrated",
        messageExpression: WARNING,
      },
    ],
    auditAnnotations: undefined,
  };
  const bindingSpec = {
    policyName: WARN_POLICY_NAME,
    matchResources: undefined,
    paramRef: undefined,
    validationActions: ["Warn", "Audit"],
  };
  return {
    policy: { apiVersion, kind: "ValidatingAdmissionPolicy", metadata, spec: policySpec },
    binding: { apiVersion, kind: "ValidatingAdmissionPolicyBinding", metadata, spec: bindingSpec },
  };
}

function hasAnnotation(object: "oldObject" | "object", name: string): string {
  return `(has(${object}.metadata.annotations) && "${name}" in ${object}.metadata.annotations)`;
}
