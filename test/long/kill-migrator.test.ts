import { setTimeout as delay } from "node:timers/promises";
import t, { type Test } from "tap";
import { hasFreezeAnnotation } from "../integration/frozen.ts";
import { MERGE_PATCH } from "../api-client.ts";
import { Cluster, eventually } from "../integration/cluster.ts";
import type { KsvmLine } from "../chaos/ksvm-process.ts";
import { between, IS_LONG, pick, type Random, randomFrom } from "../chaos/random.ts";
import { Scenario } from "../chaos/scenario.ts";
import { TEST_SEED } from "../seed.ts";

const seed = TEST_SEED;
const cluster = await Cluster.start(t);
const KILLS = IS_LONG ? 20 : 3;
const OBJECTS = IS_LONG ? 300 : 200;
const SLOW = ["--max-qps", "100"];

/** After which line of a run, and how much later, it is killed. Most of a run's time is progress. */
const POINTS = ["converged", "frozen", "progress", "progress", "progress", "pruned"] as const;

interface KillPoint {
  readonly line: KsvmLine["type"];
  readonly delayMs: number;
}

function killPoint(random: Random): KillPoint {
  const line = pick(random, POINTS);
  return { line, delayMs: between(random, 0, line === "progress" ? 2_000 : 150) };
}

/** Makes every object stale again, where a run got as far as pruning before it was killed. */
async function makeStale(scenario: Scenario): Promise<void> {
  const { api } = cluster;
  const { kind } = scenario;
  await scenario.setStorage("v1alpha1");
  await eventually(async () => {
    const { items } = await api.listMetadata(kind.resource("v1")).catch(() => ({ items: [] }));
    for (const { metadata } of items) {
      const body = { metadata: { labels: { touched: metadata.resourceVersion } } };
      await api.patch(kind.resource("v1"), metadata, { type: MERGE_PATCH, body }).catch(() => undefined);
    }
    const { v1alpha1 = 0, v1 = 0 } = await cluster.storedAs(kind);
    return v1alpha1 > v1;
  }, "objects are stored in the old version again");
  await scenario.setStorage("v1");
}

async function killOnce(t: Test, scenario: Scenario, { line, delayMs }: KillPoint): Promise<boolean> {
  const run = scenario.startKsvm(SLOW);
  await run.untilLine(line, "result", "error");
  await delay(delayMs);
  const { code, stderr } = await run.kill();
  // It may have been done before, but it has not failed.
  t.ok(code === null || code === 0, `killed ${delayMs} ms after "${line}"`, { code, stderr });
  if (!IS_LONG) await scenario.hurryLease();
  return code === null;
}

await t.test(`kill -9 of the migrator at ${KILLS} random points`, async (t) => {
  const random = randomFrom(seed);
  const scenario = await Scenario.start(t, cluster, "killed", { seed, objects: OBJECTS });
  let kills = 0;
  for (let runs = 0; kills < KILLS && runs < KILLS * 3; runs++) {
    kills += (await killOnce(t, scenario, killPoint(random))) ? 1 : 0;
    if (await scenario.isPruned()) {
      const swept = await scenario.startKsvm().ended;
      t.equal(swept.code, 0, "the freeze of a dead run that pruned is swept", { stderr: swept.stderr });
      t.notOk(hasFreezeAnnotation(await cluster.crd(scenario.kind)));
      await makeStale(scenario);
    }
  }
  t.equal(kills, KILLS, "it was killed as often as intended");
  const { storageChangesWhileFrozen } = await scenario.assertSoundEnd(t);
  t.equal(storageChangesWhileFrozen, 0);
});
