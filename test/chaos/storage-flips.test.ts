import { setTimeout as delay } from "node:timers/promises";
import t from "tap";
import { MIGRATING } from "../../src/freeze/rule.ts";
import { CRDS, MERGE_PATCH, POLICIES, POLICY_BINDINGS } from "../api-client.ts";
import { policyName } from "../../src/freeze/freeze.ts";
import { Cluster } from "../integration/cluster.ts";
import { errorCodeOf } from "./ksvm-process.ts";
import { IS_LONG } from "./random.ts";
import { Scenario } from "./scenario.ts";
import { StorageFlipper } from "./storage-flipper.ts";
import { TEST_SEED } from "../seed.ts";

const seed = TEST_SEED;
const cluster = await Cluster.start(t);
const { api } = cluster;
const OBJECTS = IS_LONG ? 250 : 150;
const SLOW = ["--max-qps", "40"];
/** How many runs there are while another client changes the storage version. */
const ATTEMPTS = IS_LONG ? 10 : 1;
const LIFTED = { [MIGRATING]: null };

for (const annotations of IS_LONG ? [{}, LIFTED] : []) {
  const how = annotations === LIFTED ? ", taking the annotation off in the same update" : "";
  await t.test(`another client that changes the storage version as often as it can is denied${how}`, async (t) => {
    const scenario = await Scenario.start(t, cluster, "guarded", { seed, objects: OBJECTS });
    const run = scenario.startKsvm(SLOW);
    await run.untilLine("frozen", "error");
    // The first one that is accepted comes after the prune: the run takes its policy away, and then the annotation off.
    const flipper = StorageFlipper.start(scenario, { annotations, onlyOnce: true });
    const end = await run.ended;
    const { denied, others } = await flipper.stop();
    t.equal(end.code, 0, end.stderr);
    t.ok(denied > 20, `${denied} attempts were denied`);
    t.same(others, []);
    const { storageChangesWhileFrozen } = await scenario.assertSoundEnd(t);
    t.ok(storageChangesWhileFrozen <= 1, "no attempt got through before the policy was gone");
  });
}

/** Runs ksvm again and again against a flipper, which begins once the first run rewrites objects. */
async function runAgainst(t: Parameters<typeof Scenario.start>[0], scenario: Scenario, before: () => Promise<unknown>) {
  const first = scenario.startKsvm(SLOW);
  await first.untilLine("progress", "error");
  const flipper = StorageFlipper.start(scenario, { before, pauseMs: 50 });
  const ends = [await first.ended];
  while (ends.length < ATTEMPTS) {
    const next = scenario.startKsvm(SLOW);
    ends.push(await next.ended);
    await delay(200);
  }
  const { accepted } = await flipper.stop();
  t.ok(accepted > 0, `the storage version was changed ${accepted} times`);
  const codes = ends.map((end) => errorCodeOf(end) ?? String(end.code));
  console.error(`  ${t.name}: ${accepted} storage changes, runs ended with ${codes.join(", ")}`);
  return ends;
}

await t.test("another client that takes the annotation off and changes the storage version", async (t) => {
  const scenario = await Scenario.start(t, cluster, "lifted", { seed: seed + 1, objects: OBJECTS });
  const lift = { type: MERGE_PATCH, body: { metadata: { annotations: LIFTED } } };
  const ends = await runAgainst(t, scenario, () => api.patch(CRDS, scenario.kind, lift));
  for (const end of ends) scenario.assertTrueEnd(t, end, ["FreezeLifted", "StorageVersionChanged"]);
  await scenario.assertSoundEnd(t);
});

if (IS_LONG) {
  await t.test("another client that deletes policy and binding and changes the storage version", async (t) => {
    const scenario = await Scenario.start(t, cluster, "unguarded", { seed: seed + 2, objects: OBJECTS });
    const policy = { name: policyName(scenario.kind.name) };
    const ends = await runAgainst(t, scenario, async () => {
      await api.delete(POLICY_BINDINGS, policy);
      await api.delete(POLICIES, policy);
    });
    const reasons = ["StorageVersionChanged", "FreezeNotProven", "ApiServerMissing"];
    for (const end of ends) scenario.assertTrueEnd(t, end, reasons);
    await scenario.assertSoundEnd(t);
  });
}
