import t from "tap";
import { storedVersionsOf } from "../../src/api/crd.ts";
import { assertNoTraces, assertUnfrozen } from "./assert-no-traces.ts";
import { Cluster } from "./cluster.ts";
import { TestKind } from "./crd-fixture.ts";
import { optionsOf, restartWith } from "./encrypted-objects.ts";

// An API server that stores custom resources in the old version while its discovery and its watch of CRDs show the new one cannot be had at a given
// moment. One with another encryption key stores each of them otherwise, too, and that is all that a run sees of either.
const cluster = await Cluster.start(t, {
  apiservers: 2,
  overrides: [optionsOf(0, ["key0", "key1"]), optionsOf(1, ["key1", "key0"])],
});
const { controlPlane } = cluster;
const [first, second] = controlPlane.apiservers;
const FLAGS = ["--settle", "1s", "--apiserver-endpoints", `${first?.url},${second?.url}`];

await t.test(
  "nothing is pruned while an API server stores objects otherwise than the one that rewrote them",
  async (t) => {
    const kind = new TestKind("alike");
    await cluster.createStale(kind, 5);
    const run = await cluster.migrate([kind.name, ...FLAGS]);
    t.equal(run.code, 1, run.stdout);
    t.match(run.stdout, /starting again: .* stores an object otherwise than the API server that stored it before/);
    t.match(run.stderr, new RegExp(`${second?.url} stores an object otherwise .*\\[NotConverged\\]`));
    t.same(storedVersionsOf(await cluster.crd(kind)), ["v1alpha1", "v1"]);
    await assertUnfrozen(t, cluster, kind);
    await restartWith(cluster, ["key0", "key1"], { indexes: [1] });
    const again = await cluster.migrate([kind.name, ...FLAGS]);
    t.equal(again.code, 0, "negative control: nothing else stands in the way", { stderr: again.stderr });
    t.same(storedVersionsOf(await cluster.crd(kind)), ["v1"]);
    await assertNoTraces(t, cluster, kind);
  },
);
