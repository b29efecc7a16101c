import t from "tap";
import { Cluster, eventually } from "../integration/cluster.ts";
import type { TestKind } from "../integration/crd-fixture.ts";
import { announcedSeed, IS_LONG } from "./random.ts";
import { Scenario } from "./scenario.ts";
import { holdCreates } from "./slow-creates.ts";

const seed = announcedSeed("late-writes.test.ts");
const REQUEST_TIMEOUT_S = 10;
const HELD_MS = 7_000;
const HELD_WRITES = 20;
const ROUNDS = 3;
const FLAGS = ["--convergence-timeout", "60s", "--proof-timeout", "60s"];
const cluster = await Cluster.start(t, { requestTimeout: `${REQUEST_TIMEOUT_S}s` });
const { api } = cluster;
const skip = IS_LONG ? false : "make chaos runs it";

const webhook = await holdCreates(t, api, { prefix: "late", heldMs: HELD_MS });

/** Begins creates of the old version that the slow webhook holds; they end when it lets them go. */
async function beginCreates(kind: TestKind, prefix: string): Promise<Promise<unknown>[]> {
  const before = webhook.calls();
  const objects = kind.objects(HELD_WRITES, "v1alpha1", prefix);
  const creates = objects.map((object) => api.create(kind.resource("v1alpha1"), object).catch(() => undefined));
  await eventually(async () => webhook.calls() >= before + HELD_WRITES, "creates are held");
  return creates;
}

async function runAcrossLateWrites(t: Parameters<typeof Scenario.start>[0], settle: string): Promise<Scenario> {
  let held: Promise<unknown>[] = [];
  const hold = async (kind: TestKind): Promise<void> => {
    held = await beginCreates(kind, "late-first-");
  };
  const flags = ["--settle", settle, ...FLAGS];
  const scenario = await Scenario.start(t, cluster, "late", { seed, objects: 200, flags, beforeStorageChange: hold });
  const end = await scenario.startKsvm().ended;
  t.equal(end.code, 0, end.stderr);
  await Promise.all(held);
  return scenario;
}

await t.test("late writes of the old version under load do not outlive a migration", { skip }, async (t) => {
  const scenario = await runAcrossLateWrites(t, `${REQUEST_TIMEOUT_S}s`);
  for (let round = 0; round < ROUNDS; round++) {
    await scenario.setStorage("v1alpha1");
    const held = await beginCreates(scenario.kind, `late${round}-`);
    await scenario.setStorage("v1");
    const end = await scenario.startKsvm().ended;
    t.equal(end.code, 0, end.stderr);
    await Promise.all(held);
  }
  await scenario.assertSoundEnd(t);
});

await t.test("negative control: without settling the checker finds the late writes", { skip }, async (t) => {
  // The load's own requests are short, so what is found are the creates that were held.
  const scenario = await runAcrossLateWrites(t, "0");
  await scenario.load?.stop();
  const report = await scenario.checker.stop();
  t.match(report.breachesInHistory[0], { version: "v1alpha1", storedVersions: ["v1"] });
  t.ok(report.breachesInSnapshots.length > 0);
});
