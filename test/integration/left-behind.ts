import { policyName } from "../../src/freeze/freeze.ts";
import { CRD_FIELD_MANAGER, MIGRATING, OWNER, policySpec } from "../../src/freeze/rule.ts";
import { CRDS, MERGE_PATCH, POLICIES, POLICY_BINDINGS } from "../api-client.ts";
import type { Cluster } from "./cluster.ts";
import type { TestKind } from "./crd-fixture.ts";

const SINCE = "2026-01-01T00:00:00.000Z";

/** What a run that was killed leaves behind on a CRD. */
export async function leaveFreeze(
  { api }: Cluster,
  kind: TestKind,
  lease = "kube-system/ksvm-migrate.dead",
): Promise<void> {
  const owner = JSON.stringify({ lease, identity: "host_dead", since: SINCE });
  const annotations = { [MIGRATING]: "true", [OWNER]: owner };
  const patch = { type: MERGE_PATCH, body: { metadata: { annotations } } };
  await api.patch(CRDS, kind, patch, { fieldManager: CRD_FIELD_MANAGER });
  const metadata = { name: policyName(kind.name), annotations: { [OWNER]: owner } };
  const apiVersion = "admissionregistration.k8s.io/v1";
  const policy = { apiVersion, kind: "ValidatingAdmissionPolicy", metadata, spec: policySpec(kind.name) };
  const spec = { policyName: metadata.name, validationActions: ["Deny"] };
  await api.create(POLICIES, policy);
  await api.create(POLICY_BINDINGS, { apiVersion, kind: "ValidatingAdmissionPolicyBinding", metadata, spec });
}
