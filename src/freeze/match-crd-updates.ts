/** What of a CRD an update is about. */
export type CrdPart = "customresourcedefinitions" | "customresourcedefinitions/status";

/**
 * The `matchConstraints` of a policy on updates of every CRD. The selectors are written out, so that one that another client
 * adds is a difference from what is wanted.
 */
export function matchCrdUpdates(resources: readonly CrdPart[]): Readonly<Record<string, unknown>> {
  const rule = {
    apiGroups: ["apiextensions.k8s.io"],
    apiVersions: ["v1"],
    operations: ["UPDATE"],
    resources,
    scope: "Cluster",
  };
  return { matchPolicy: "Equivalent", namespaceSelector: {}, objectSelector: {}, resourceRules: [rule] };
}
