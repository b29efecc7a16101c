import {
  CRD_FIELD_MANAGER,
  MIGRATING_ANNOTATION,
  OWNER_ANNOTATION,
  STORAGE_MIGRATING_CONDITION,
} from "../../src/api/names.ts";
import { formatOwner } from "../../src/api/owner.ts";
import { freezePolicyOf } from "../../src/old/freeze/freeze-policy.ts";
import { CRDS, MERGE_PATCH, POLICIES, POLICY_BINDINGS } from "../../src/old/kube/resources.ts";
import type { Cluster } from "./cluster.ts";
import type { TestKind } from "./crd-fixture.ts";

const SINCE = "2026-01-01T00:00:00.000Z";

/** What a run that was killed leaves behind on a CRD. */
export async function leaveFreeze(
  { api }: Cluster,
  kind: TestKind,
  lease = "kube-system/ksvm-migrate.dead",
): Promise<void> {
  const owner = formatOwner({ lease, identity: "host_dead", since: SINCE });
  const annotations = { [MIGRATING_ANNOTATION]: "true", [OWNER_ANNOTATION]: owner };
  const patch = { type: MERGE_PATCH, body: { metadata: { annotations } } };
  await api.patch(CRDS, kind, patch, { fieldManager: CRD_FIELD_MANAGER });
  const { policy, binding } = freezePolicyOf(kind.name, { annotations: { [OWNER_ANNOTATION]: owner } });
  await api.create(POLICIES, { ...policy });
  await api.create(POLICY_BINDINGS, { ...binding });
}

/** The condition that Kubernetes' own migrator sets, without a migration of it. */
export async function leaveStorageMigrating(cluster: Cluster, kind: TestKind): Promise<void> {
  const condition = {
    type: STORAGE_MIGRATING_CONDITION,
    status: "True",
    reason: "StorageMigrating",
    message: "",
    lastTransitionTime: new Date().toISOString(),
  };
  const conditions = [...((await cluster.crd(kind)).status?.conditions ?? []), condition];
  const patch = { type: MERGE_PATCH, body: { status: { conditions } } };
  await cluster.api.patch(CRDS, kind, patch, { subresource: "status" });
}
