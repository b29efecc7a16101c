import { setTimeout as delay } from "node:timers/promises";
import t from "tap";
import { CRDS } from "../api-client.ts";
import { Cluster, eventually } from "../integration/cluster.ts";
import { between, IS_LONG, randomFrom } from "../chaos/random.ts";
import { Scenario } from "../chaos/scenario.ts";
import { TEST_SEED } from "../seed.ts";

const seed = TEST_SEED;
const cluster = await Cluster.start(t);
const { api } = cluster;
const OBJECTS = 200;
const ROUNDS = IS_LONG ? 10 : 1;

await t.test("the CRD is deleted and created again in mid-run", async (t) => {
  const random = randomFrom(seed);
  const scenario = await Scenario.start(t, cluster, "replaced", { seed, objects: OBJECTS });
  const { kind, load } = scenario;
  for (let round = 0; round < ROUNDS; round++) {
    const run = scenario.startKsvm(["--max-qps", "60"]);
    await run.untilLine("progress", "error");
    await delay(between(random, 0, 1_500));
    await api.delete(CRDS, kind);
    await eventually(async () => (await api.find(CRDS, kind)) === undefined, "the CRD is gone", 60_000);
    load?.forget();
    await cluster.createCrd(kind, { storage: "v1alpha1", statusSubresource: true });
    const objects = kind.objects(OBJECTS, "v1alpha1", `again${round}-`);
    await cluster.createObjects(kind.resource("v1alpha1"), objects);
    // The run begins again with the new CRD, and may have frozen it by now.
    const isChanged = (): Promise<boolean> =>
      scenario.setStorage("v1").then(
        () => true,
        () => false,
      );
    await eventually(isChanged, "the storage version can be changed");
    const reasons = ["ResourceNotFound", "ResourceNotMigratable", "StorageVersionChanged"];
    scenario.assertTrueEnd(t, await run.ended, reasons);
  }
  await scenario.assertSoundEnd(t);
});
