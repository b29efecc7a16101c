import t from "tap";
import { CRDS, MERGE_PATCH } from "../../src/kube/resources.ts";
import { systemClock } from "../../src/clock.ts";
import type { PartialObjectMetadata } from "../../src/api/meta.ts";
import { noOpWrite } from "../../src/migrator/no-op-write.ts";
import { Retrier } from "../../src/migrator/retrier.ts";
import { Cluster } from "../integration/cluster.ts";
import { announcedSeed } from "./random.ts";
import { assertSound, Scenario } from "./scenario.ts";

const seed = announcedSeed("checker.test.ts");
const cluster = await Cluster.start(t);
const OBJECTS = 60;

const signal = AbortSignal.timeout(300_000);
/** A handler that was set up anew a moment ago answers 429. */
const retrier = new Retrier({ clock: systemClock, random: () => 0.5 });

async function listObjects({ kind }: Scenario): Promise<readonly PartialObjectMetadata[]> {
  return (await retrier.run(() => cluster.api.listMetadata(kind.resource("v1")), signal)).items;
}

/** Rewrites one object after the other, and prunes when `pruneAfter` of them are done. */
async function pruneTooEarly(scenario: Scenario, pruneAfter: number): Promise<void> {
  const { api } = cluster;
  const { kind } = scenario;
  const resource = { ...kind.resource("v1"), kind: kind.kind };
  for (const [index, { metadata }] of (await listObjects(scenario)).entries()) {
    if (index === pruneAfter) {
      const body = { status: { storedVersions: ["v1"] } };
      await api.patch(CRDS, kind, { type: MERGE_PATCH, body }, { subresource: "status" });
    }
    await retrier.run(() => noOpWrite(api.transport, resource, metadata, { signal }), signal);
  }
}

await t.test("negative control: a migrator that prunes after half of the objects is caught in both ways", async (t) => {
  const scenario = await Scenario.start(t, cluster, "early", { seed, objects: OBJECTS, load: false });
  await pruneTooEarly(scenario, OBJECTS / 2);
  t.same(await cluster.storedAs(scenario.kind), { v1: OBJECTS }, "in the end nothing is wrong any more");
  const { breachesInHistory, breachesInSnapshots, prunes } = await scenario.checker.stop();
  t.equal(prunes, 1);
  t.match(breachesInHistory[0], { version: "v1alpha1", objects: OBJECTS / 2, storedVersions: ["v1"] });
  t.match(breachesInSnapshots[0], { version: "v1alpha1", storedVersions: ["v1"] });
});

await t.test("negative control: a prune that is one single object too early is caught", async (t) => {
  const scenario = await Scenario.start(t, cluster, "hasty", { seed, objects: OBJECTS, load: false });
  await pruneTooEarly(scenario, OBJECTS - 1);
  const { breachesInHistory, breachesInSnapshots } = await scenario.checker.stop();
  t.match(breachesInHistory[0], { version: "v1alpha1", objects: 1 });
  // The snapshot that a change of the CRD asks for is of that very revision, however late it is taken.
  t.match(breachesInSnapshots[0], { version: "v1alpha1", objects: 1 });
});

await t.test("a run without any harm is sound, and others lose nothing by it", async (t) => {
  const scenario = await Scenario.start(t, cluster, "calm", { seed, objects: 200 });
  const { code, stderr } = await scenario.startKsvm(["--max-qps", "100"]).ended;
  t.equal(code, 0, stderr);
  const report = await scenario.assertSoundEnd(t);
  t.equal(report.prunes, 1);
});

await t.test("negative control: an object that somebody took away or changed is missed", async (t) => {
  const scenario = await Scenario.start(t, cluster, "theft", { seed, objects: 30 });
  const { api } = cluster;
  const { kind, load } = scenario;
  await load?.stop();
  const [first, second] = await listObjects(scenario);
  await api.delete(kind.resource("v1"), { name: first?.metadata.name ?? "", namespace: "default" });
  const body = { spec: { size: -1 } };
  await api.patch(kind.resource("v1"), second?.metadata ?? { name: "" }, { type: MERGE_PATCH, body });
  const stored = await cluster.controlPlane.stored.storedObjects("example.com", kind.plural);
  t.match(load?.lossesIn(stored), [/./, /./], "both");
  t.match(load?.lossesIn(stored).join(), /is gone/);
  t.match(load?.lossesIn(stored).join(), /has size -1 instead of/);
  assertSound(t, await scenario.checker.stop());
});
