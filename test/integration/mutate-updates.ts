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

/**
 * The same for ConfigMaps: an entry is added to the labels or annotations of some, whenever they are updated.
 * @param changes what is changed of which object
 */
export async function mutateMetadata(
  { api }: Cluster,
  changes: Readonly<Record<string, "labels" | "annotations">>,
): Promise<void> {
  const base = { apiVersion: `${ADMISSION.group}/${ADMISSION.version}` };
  for (const [name, field] of Object.entries(changes)) {
    const patch = `[JSONPatch{op: "add", path: "/metadata/${field}/owner", value: "platform"}]`;
    const rule = { apiGroups: [""], apiVersions: ["*"], resources: ["configmaps"], operations: ["UPDATE"] };
    await api.create(
      { ...ADMISSION, resource: "mutatingadmissionpolicies" },
      {
        ...base,
        kind: "MutatingAdmissionPolicy",
        metadata: { name },
        spec: {
          matchConstraints: { resourceRules: [rule] },
          matchConditions: [{ name: "named", expression: `object.metadata.name == "${name}"` }],
          mutations: [{ patchType: "JSONPatch", jsonPatch: { expression: patch } }],
          reinvocationPolicy: "Never",
        },
      },
    );
    await api.create(
      { ...ADMISSION, resource: "mutatingadmissionpolicybindings" },
      { ...base, kind: "MutatingAdmissionPolicyBinding", metadata: { name }, spec: { policyName: name } },
    );
  }
}
