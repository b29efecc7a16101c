/** What of a CRD an update is about. */
export type CrdPart = "customresourcedefinitions" | "customresourcedefinitions/status";

/**
 * The `matchConstraints` of a policy on updates of every CRD. The selectors are written out, and so is what is to be absent, so that what
 * another client adds to exempt a CRD is a difference from what is wanted.
 */
export function matchCrdUpdates(resources: readonly CrdPart[]): Readonly<Record<string, unknown>> {
  const rule = {
    apiGroups: ["apiextensions.k8s.io"],
    apiVersions: ["v1"],
    operations: ["UPDATE"],
    resources,
    scope: "Cluster",
    resourceNames: undefined,
  };
  return {
    matchPolicy: "Equivalent",
    namespaceSelector: {},
    objectSelector: {},
    resourceRules: [rule],
    excludeResourceRules: undefined,
  };
}

/** The `spec` of the binding of such a policy: in force for every CRD, whatever the policy's own constraints match. */
export function bindEverywhere(policyName: string): Readonly<Record<string, unknown>> {
  return { policyName, matchResources: undefined, paramRef: undefined };
}
