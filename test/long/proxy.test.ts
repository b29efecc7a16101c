import t from "tap";
import { Cluster } from "../integration/cluster.ts";
import { ChaosProxy } from "../chaos/chaos-proxy.ts";
import { disturbanceBy } from "../chaos/disturbance.ts";
import { errorCodeOf } from "../chaos/ksvm-process.ts";
import { IS_LONG, randomFrom } from "../chaos/random.ts";
import { Scenario } from "../chaos/scenario.ts";
import { TEST_SEED } from "../seed.ts";

const seed = TEST_SEED;
const cluster = await Cluster.start(t);
const SHARE = 0.2;
const ROUNDS = IS_LONG ? 3 : 1;

await t.test(
  "a proxy that resets, delays, truncates and answers 429, 500 and 503 to 20 % of the requests",
  async (t) => {
    const random = randomFrom(seed);
    const proxy = await ChaosProxy.start(t, cluster.controlPlane, { disturb: () => disturbanceBy(random, SHARE) });
    for (let round = 0; round < ROUNDS; round++) {
      const scenario = await Scenario.start(t, cluster, "proxied", {
        seed: seed + round,
        objects: IS_LONG ? 2_000 : 150,
      });
      const end = await scenario.startKsvm([], proxy.kubeconfig).ended;
      console.error(`  ${t.name}: ended with ${end.code} ${errorCodeOf(end) ?? ""}`);
      scenario.assertTrueEnd(t, end, []);
      await scenario.assertSoundEnd(t);
    }
    const { none = 0, ...disturbed } = proxy.disturbed;
    t.ok(none > 0 && Object.keys(disturbed).length > 1, JSON.stringify(proxy.disturbed));
  },
);
