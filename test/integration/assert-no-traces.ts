import type { Test } from "tap";
import { policyName } from "../../src/freeze/freeze.ts";
import { MIGRATING, OWNER } from "../../src/freeze/rule.ts";
import { type KubeObject, LEASES, POLICIES, POLICY_BINDINGS } from "../api-client.ts";
import type { Cluster } from "./cluster.ts";
import type { TestKind } from "./crd-fixture.ts";

/** However a run ends, the CRD is not frozen and nobody guards it any more. */
export async function assertUnfrozen(t: Test, cluster: Cluster, kind: TestKind): Promise<void> {
  const policy = { name: policyName(kind.name) };
  const crd = await cluster.crd(kind);
  t.equal(crd.metadata.annotations?.[MIGRATING], undefined, "no annotation is left");
  t.equal(crd.metadata.annotations?.[OWNER], undefined, "no owner is left");
  t.equal(await cluster.api.find(POLICIES, policy), undefined, "no policy is left");
  t.equal(await cluster.api.find(POLICY_BINDINGS, policy), undefined, "no policy binding is left");
}

/** A run that left nothing to resume leaves nothing at all. */
export async function assertNoTraces(t: Test, cluster: Cluster, kind: TestKind): Promise<void> {
  await assertUnfrozen(t, cluster, kind);
  const leases = await cluster.api.list<KubeObject>(LEASES, { namespace: "kube-system" });
  const left = leases.filter(({ metadata }) => metadata.name?.endsWith(kind.name) === true);
  t.same(left, [], "no Lease is left");
}
