import { createHash } from "node:crypto";
import { FREEZE_REASON, MANAGED_BY, MANAGED_BY_LABEL } from "../../api/names.ts";
import { DENIAL_MESSAGE_EXPRESSION, FROZEN_EXPRESSION, STORAGE_CHANGED_EXPRESSION } from "./freeze-cel.ts";

/** An object of admissionregistration.k8s.io/v1, ready to be created or applied. */
export interface PolicyObject {
  readonly apiVersion: "admissionregistration.k8s.io/v1";
  readonly kind: "ValidatingAdmissionPolicy" | "ValidatingAdmissionPolicyBinding";
  readonly metadata: {
    readonly name: string;
    readonly labels: Readonly<Record<string, string>>;
    readonly annotations?: Readonly<Record<string, string>>;
  };
  readonly spec: Readonly<Record<string, unknown>>;
}

/** The guard of one migration where the webhook is not installed. Neither object does anything without the other. */
export interface FreezePolicy {
  readonly policy: PolicyObject;
  readonly binding: PolicyObject;
}

/** Metadata beside the name; the label that says who manages the objects is always there. */
export interface FreezePolicyMetadata {
  readonly labels?: Readonly<Record<string, string>>;
  readonly annotations?: Readonly<Record<string, string>>;
}

const NAME_PREFIX = "ksvm-freeze.";

/** https://kubernetes.io/docs/concepts/overview/working-with-objects/names/#dns-subdomain-names */
const MAX_NAME_LENGTH = 253;
const HASH_LENGTH = 32;

/**
 * The freeze rule as a ValidatingAdmissionPolicy that matches one CRD, and its binding. Both have the same name, which
 * follows from the CRD's.
 */
export function freezePolicyOf(crdName: string, metadata: FreezePolicyMetadata = {}): FreezePolicy {
  const name = policyNameOf(crdName);
  const common = {
    apiVersion: "admissionregistration.k8s.io/v1",
    metadata: {
      name,
      labels: { ...metadata.labels, [MANAGED_BY_LABEL]: MANAGED_BY },
      annotations: { ...metadata.annotations },
    },
  } as const;
  return {
    policy: { ...common, kind: "ValidatingAdmissionPolicy", spec: policySpec(crdName) },
    binding: {
      ...common,
      kind: "ValidatingAdmissionPolicyBinding",
      spec: { policyName: name, validationActions: ["Deny"] },
    },
  };
}

/** The name of the policy and the binding of a CRD. A CRD's name may leave no room for the prefix: a hash takes its place. */
function policyNameOf(crdName: string): string {
  const name = `${NAME_PREFIX}${crdName}`;
  if (name.length <= MAX_NAME_LENGTH) {
    return name;
  }
  const hash = createHash("sha256").update(crdName).digest("hex").slice(0, HASH_LENGTH);
  const room = MAX_NAME_LENGTH - hash.length - 1;
  // Each label of the name has to end in a letter or a digit.
  return `${name.slice(0, room).replace(/[.-]+$/, "")}.${hash}`;
}

/** The CRD that a policy of such a name guards; `undefined` where it guards none, or its name has a hash in the place of the CRD's. */
export function guardedCrdOf(policyName: string): string | undefined {
  const crdName = policyName.slice(NAME_PREFIX.length);
  const isWhole = policyName.length < MAX_NAME_LENGTH - HASH_LENGTH;
  return policyName.startsWith(NAME_PREFIX) && isWhole && crdName !== "" ? crdName : undefined;
}

function policySpec(crdName: string): PolicyObject["spec"] {
  return {
    failurePolicy: "Fail",
    matchConstraints: {
      matchPolicy: "Equivalent",
      resourceRules: [
        {
          apiGroups: ["apiextensions.k8s.io"],
          apiVersions: ["v1"],
          operations: ["UPDATE"],
          resources: ["customresourcedefinitions"],
          resourceNames: [crdName],
          scope: "Cluster",
        },
      ],
    },
    matchConditions: [{ name: "frozen", expression: FROZEN_EXPRESSION }],
    validations: [
      {
        expression: `!(${STORAGE_CHANGED_EXPRESSION})`,
        reason: "Forbidden",
        // Stands in where the expression below cannot be evaluated.
        message: `${FREEZE_REASON}: cannot change the storage version of CustomResourceDefinition "${crdName}" while its objects are being migrated`,
        messageExpression: DENIAL_MESSAGE_EXPRESSION,
      },
    ],
  };
}
