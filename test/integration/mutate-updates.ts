import type { Cluster } from "./cluster.ts";
import { GROUP, type TestKind } from "./crd-fixture.ts";

const ADMISSION = { group: "admissionregistration.k8s.io", version: "v1" } as const;

/**
 * An admission rule of another owner that writes `spec.owner` into objects whenever they are updated, as a defaulting webhook that
 * came later does. It comes into force a moment later.
 * @param names of the objects that it changes
 */
export async function mutateUpdates({ api }: Cluster, { plural }: TestKind, names: readonly string[]): Promise<void> {
  const rule = { apiGroups: [GROUP], apiVersions: ["*"], resources: [plural], operations: ["UPDATE"] };
  const base = { apiVersion: `${ADMISSION.group}/${ADMISSION.version}`, metadata: { name: plural } };
  const patch = `[JSONPatch{op: "add", path: "/spec/owner", value: "platform"}]`;
  await api.create(
    { ...ADMISSION, resource: "mutatingadmissionpolicies" },
    {
      ...base,
      kind: "MutatingAdmissionPolicy",
      spec: {
        matchConstraints: { resourceRules: [rule] },
        matchConditions: [{ name: "named", expression: `object.metadata.name in ${JSON.stringify(names)}` }],
        mutations: [{ patchType: "JSONPatch", jsonPatch: { expression: patch } }],
        reinvocationPolicy: "Never",
      },
    },
  );
  await api.create(
    { ...ADMISSION, resource: "mutatingadmissionpolicybindings" },
    { ...base, kind: "MutatingAdmissionPolicyBinding", spec: { policyName: plural } },
  );
}
