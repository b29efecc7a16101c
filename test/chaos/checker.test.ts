import t, { type Test } from "tap";
import { storageVersionHashOf } from "../../src/api/crd.ts";
import { MIGRATION_API_VERSION } from "../../src/api/migration.ts";
import { CRD_ANNOTATION } from "../../src/api/names.ts";
import { CRDS, MERGE_PATCH, STORAGE_STATES } from "../../src/kube/resources.ts";
import { systemClock } from "../../src/clock.ts";
import type { PartialObjectMetadata } from "../../src/api/meta.ts";
import { noOpWrite } from "../../src/migrator/rewrite/no-op-write.ts";
import { Retrier } from "../../src/retry/retrier.ts";
import { Cluster, eventually } from "../integration/cluster.ts";
import { GROUP, TestKind } from "../integration/crd-fixture.ts";
import { installCrds } from "../integration/install-crds.ts";
import { announcedSeed } from "./random.ts";
import { assertSound, Scenario } from "./scenario.ts";
import { SoundnessChecker } from "./soundness-checker.ts";

const seed = announcedSeed("checker.test.ts");
const cluster = await Cluster.start(t);
const { api } = cluster;
await installCrds(cluster);
const OBJECTS = 60;
/** Of an object of which one more is created with each try. */
const another = { generateName: "another-", namespace: "default" };

const signal = AbortSignal.timeout(300_000);
/** A handler that was replaced a moment ago answers 429. */
const retrier = new Retrier({ clock: systemClock, random: () => 0.5 });

async function listObjects({ kind }: Scenario): Promise<readonly PartialObjectMetadata[]> {
  return (await retrier.run(() => cluster.api.listMetadata(kind.resource("v1")), signal)).items;
}

/** Rewrites one object after the other, and prunes when `pruneAfter` of them are done. */
async function pruneTooEarly(scenario: Scenario, pruneAfter: number): Promise<void> {
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

/** A CRD whose objects are stored as v1alpha1, and a StorageState that names v1alpha1 alone, by its generation. */
async function createWatched(t: Test, word: string) {
  const kind = new TestKind(word);
  await cluster.createCrd(kind, { storage: "v1alpha1" });
  await cluster.createObjects(kind.resource("v1alpha1"), kind.objects(3, "v1alpha1"));
  const versions = ["v1alpha1", "v1"] as const;
  const hashes = new Map(
    versions.map((version) => [version, storageVersionHashOf(GROUP, version, kind.kind)] as const),
  );
  const checker = await SoundnessChecker.start(t, () => cluster.controlPlane.stored, kind, { hashes });
  const resource = { group: GROUP, resource: kind.plural };
  const metadata = { name: kind.name };
  await api.create(STORAGE_STATES, {
    apiVersion: MIGRATION_API_VERSION,
    kind: "StorageState",
    metadata,
    spec: { resource },
  });
  const say = async (persisted: readonly (typeof versions)[number][]): Promise<void> => {
    const status = {
      persistedStorageVersionHashes: persisted.map((version) => hashes.get(version)),
      currentStorageVersionHash: hashes.get("v1"),
    };
    await api.patch(STORAGE_STATES, kind, { type: MERGE_PATCH, body: { status } }, { subresource: "status" });
  };
  const nameSpec = async (): Promise<void> => {
    const { uid, generation } = (await cluster.crd(kind)).metadata;
    const annotations = { [CRD_ANNOTATION]: `${uid}/${generation}/v1alpha1` };
    await api.patch(STORAGE_STATES, kind, { type: MERGE_PATCH, body: { metadata: { annotations } } });
  };
  await nameSpec();
  await say(["v1alpha1"]);
  return { kind, checker, say, nameSpec };
}

await t.test("negative control: a StorageState that drops a hash one object too early is caught", async (t) => {
  const { kind, checker, say, nameSpec } = await createWatched(t, "forgetful");
  await cluster.setVersions(kind, { storage: "v1" });
  await say(["v1alpha1", "v1"]);
  await nameSpec();
  const resource = { ...kind.resource("v1"), kind: kind.kind };
  const [last, ...others] = (await retrier.run(() => api.listMetadata(resource, {}), signal)).items;
  for (const { metadata } of others) {
    await retrier.run(() => noOpWrite(api.transport, resource, metadata, { signal }), signal);
  }
  await say(["v1"]);
  if (last !== undefined)
    await retrier.run(() => noOpWrite(api.transport, resource, last.metadata, { signal }), signal);
  t.same(await cluster.storedAs(kind), { v1: 3 }, "in the end nothing is wrong any more");
  const { list } = await checker.stop();
  t.match(list.breaches, [{ version: "v1alpha1", generation: 2 }]);
  t.equal(list.completions, 2, "it was v1alpha1 alone, and then v1 alone");
});

await t.test("a StorageState that its CRD has overtaken is behind, until it names the new generation", async (t) => {
  const { kind, checker, say, nameSpec } = await createWatched(t, "overtaken");
  await cluster.setVersions(kind, { storage: "v1" });
  await eventually(async () => {
    await api.create(kind.resource("v1"), { ...kind.object("", "v1"), metadata: another });
    return (await cluster.storedAs(kind))["v1"] !== undefined;
  }, "an object is stored as v1");
  await say(["v1alpha1", "v1"]);
  await nameSpec();
  await cluster.setVersions(kind, { storage: "v1alpha1" });
  await cluster.setVersions(kind, { storage: "v1" });
  await say(["v1alpha1"]);
  await nameSpec();
  const { list } = await checker.stop();
  t.equal(list.lags, 2, "once before each of the lists");
  t.match(list.breaches[0], { version: "v1", generation: 4 }, "negative control: behind no more, and missing");
});

await t.test("a run without any harm is sound, and others lose nothing by it", async (t) => {
  const scenario = await Scenario.start(t, cluster, "calm", { seed, objects: 200 });
  const { code, stderr } = await scenario.startKsvm(["--max-qps", "100"]).ended;
  t.equal(code, 0, stderr);
  const report = await scenario.assertSoundEnd(t);
  t.equal(report.prunes, 1);
});

await t.test("negative control: an object that another client took away or changed is missed", async (t) => {
  const scenario = await Scenario.start(t, cluster, "theft", { seed, objects: 30 });
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
