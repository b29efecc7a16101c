import { POLICIES, POLICY_BINDINGS } from "../api-client.ts";
import { type Cluster, eventually } from "./cluster.ts";
import { GROUP, type TestKind } from "./crd-fixture.ts";

/**
 * An admission rule of another owner on the updates of a kind's objects, as an operator's own validation may be. It comes into
 * force a moment later.
 * @param validation what an update must meet, in CEL, and what is said where it does not
 * @param about subresources too. @default the objects themselves
 * @returns takes the rule away
 */
export async function rejectUpdates(
  { api }: Cluster,
  { plural }: TestKind,
  validation: { readonly expression: string; readonly message: string },
  about: readonly string[] | { readonly apiGroups: readonly string[]; readonly resources: readonly string[] } = [
    plural,
  ],
): Promise<() => Promise<void>> {
  const which = "resources" in about ? about : { apiGroups: [GROUP], resources: about };
  const rule = { ...which, apiVersions: ["*"], operations: ["UPDATE"] };
  const base = { apiVersion: "admissionregistration.k8s.io/v1", metadata: { name: plural } };
  await api.create(POLICIES, {
    ...base,
    kind: "ValidatingAdmissionPolicy",
    spec: { matchConstraints: { resourceRules: [rule] }, validations: [validation] },
  });
  await api.create(POLICY_BINDINGS, {
    ...base,
    kind: "ValidatingAdmissionPolicyBinding",
    spec: { policyName: plural, validationActions: ["Deny"] },
  });
  return async () => {
    await api.delete(POLICY_BINDINGS, { name: plural });
    await api.delete(POLICIES, { name: plural });
  };
}

/**
 * Rejects every update of one object, and waits until that is in force.
 * @returns takes the rule away, and waits until no API server follows it any more
 */
export async function rejectUpdatesOf(cluster: Cluster, kind: TestKind, name: string): Promise<() => Promise<void>> {
  const expression = `object.metadata.name != "${name}"`;
  const allow = await rejectUpdates(cluster, kind, { expression, message: "this one stays as it is" });
  const ref = { name, namespace: "default" };
  const touch = { type: "application/merge-patch+json", body: { metadata: { labels: { touched: "yes" } } } };
  const isRejected = (): Promise<boolean> =>
    cluster.api.patch(kind.resource("v1"), ref, touch, { dryRun: true }).then(
      () => false,
      () => true,
    );
  await eventually(isRejected, "the rule is in force");
  return async () => {
    await allow();
    await eventually(async () => !(await isRejected()), "the rule is gone");
  };
}
