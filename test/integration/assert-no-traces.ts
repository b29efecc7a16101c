import type { Test } from "tap";
import { OWNER_ANNOTATION } from "../../src/api/names.ts";
import { hasFreezeAnnotation } from "../../src/api/owner.ts";
import type { KubeObject } from "../../src/old/kube/client.ts";
import { policyGuardOf } from "../../src/old/freeze/guard-install.ts";
import { LEASES, POLICIES, POLICY_BINDINGS } from "../../src/old/kube/resources.ts";
import type { Cluster } from "./cluster.ts";
import type { TestKind } from "./crd-fixture.ts";

/** However a run ends, the CRD is not frozen and nobody guards it any more. */
export async function assertUnfrozen(t: Test, cluster: Cluster, kind: TestKind): Promise<void> {
  const policy = policyGuardOf(kind.name);
  const crd = await cluster.crd(kind);
  t.notOk(hasFreezeAnnotation(crd), "no annotation is left");
  t.equal(crd.metadata.annotations?.[OWNER_ANNOTATION], undefined, "no owner is left");
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
