import t from "tap";
import { IN_TREE_APISERVER, MIGRATIONS as IN_TREE } from "../../bench/in-tree.ts";
import { storedVersionsOf } from "../../src/api/crd.ts";
import { isAtLeast } from "../control-plane/features.ts";
import { Cluster } from "./cluster.ts";
import { installSystem } from "./controller-fixture.ts";
import { TestKind } from "./crd-fixture.ts";
import { createInTree, servedStatus, startServing } from "./serve-in-tree-fixture.ts";

// make test-kubernetes KUBERNETES_VERSION=1.35.4 FILES=test/integration/old-in-tree.test.ts
const skip = isAtLeast(36) || !isAtLeast(35) ? "it is about Kubernetes 1.35" : false;

await t.test("an in-tree migration of Kubernetes 1.35 is left alone", { skip }, async (t) => {
  const cluster = await Cluster.start(t, IN_TREE_APISERVER);
  await installSystem(cluster);
  const kind = new TestKind("old");
  await cluster.createStale(kind, 3);
  const serving = startServing(t, cluster);
  await serving.until("unserved");
  await createInTree(cluster, kind.plural, kind);
  t.same((await servedStatus(cluster, kind.plural)).conditions, []);
  t.equal((await cluster.api.listMetadata(IN_TREE)).items.length, 1, "there is no probe");
  t.same(storedVersionsOf(await cluster.crd(kind)), ["v1alpha1", "v1"]);
  t.same(await cluster.storedAs(kind), { v1alpha1: 3 });
});
