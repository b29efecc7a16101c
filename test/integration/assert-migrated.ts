import type { Test } from "tap";
import { storedVersionsOf } from "../crd.ts";
import { messageOf } from "../../src/errors.ts";
import type { Cluster } from "./cluster.ts";
import type { TestKind } from "./crd-fixture.ts";
import { dropOldVersions, pruneByHand, V1 } from "./lost-objects.ts";

/** Asserts that etcd holds so many objects of a kind, all of them in v1, and that storedVersions says so. */
export async function assertMigrated(t: Test, cluster: Cluster, kind: TestKind, count: number): Promise<void> {
  t.same(await cluster.storedAs(kind), { v1: count });
  t.same(storedVersionsOf(await cluster.crd(kind)), ["v1"]);
}

/** Asserts that the API server refuses a CRD without v1alpha1, since storedVersions names it. */
export async function assertKept(t: Test, cluster: Cluster, kind: TestKind): Promise<void> {
  t.same(storedVersionsOf(await cluster.crd(kind)), ["v1alpha1", "v1"]);
  const refusal = await cluster.setVersions(kind, V1).then(() => "", messageOf);
  t.match(refusal, /status\.storedVersions\[0\].*v1alpha1/, "a CRD without the old version is refused");
}

/** The negative control: once storedVersions is pruned, that CRD is accepted, and the object that was left cannot be read. */
export async function assertLostOncePruned(t: Test, cluster: Cluster, kind: TestKind): Promise<void> {
  await pruneByHand(cluster, kind);
  await dropOldVersions(cluster, kind);
  t.equal(
    (await cluster.storedAs(kind))["v1alpha1"],
    1,
    "negative control: etcd has the object, and no API server can read it",
  );
}
