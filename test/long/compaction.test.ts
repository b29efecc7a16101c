import t from "tap";
import { isAtLeast } from "../control-plane/features.ts";
import { Cluster } from "../integration/cluster.ts";
import { ChaosProxy } from "../chaos/chaos-proxy.ts";
import { resultOf } from "../chaos/ksvm-process.ts";
import { IS_LONG } from "../chaos/random.ts";
import { Scenario } from "../chaos/scenario.ts";
import { TEST_SEED } from "../seed.ts";

const seed = TEST_SEED;
const OBJECTS = IS_LONG ? 50_000 : 3_000;
const INTERVAL_S = IS_LONG ? 10 : 1;
// From snapshots of its own an API server serves pages that etcd has forgotten, and no token would expire.
const featureGates = isAtLeast(34) ? { ListFromCacheSnapshot: false } : {};
const cluster = await Cluster.start(t, { compactionInterval: `${INTERVAL_S}s`, featureGates });

await t.test(
  `a compaction every ${INTERVAL_S} s with ${OBJECTS} objects, so that continue tokens expire`,
  async (t) => {
    let expired = 0;
    const onAnswer = (_request: unknown, status: number): void => void (expired += status === 410 ? 1 : 0);
    const proxy = await ChaosProxy.start(t, cluster.controlPlane, { onAnswer });
    // A full read of so many objects takes its time, and the history is followed anyway.
    const snapshotEveryMs = IS_LONG ? 10_000 : 500;
    const scenario = await Scenario.start(t, cluster, "compacted", { seed, objects: OBJECTS, snapshotEveryMs });
    const startedAt = performance.now();
    const end = await scenario.startKsvm([], proxy.kubeconfig).ended;
    const seconds = (performance.now() - startedAt) / 1_000;
    t.equal(end.code, 0, end.stderr);
    t.ok(expired > 0, `continue tokens expired ${expired} times`);
    const counts = JSON.stringify(resultOf(end)?.counts);
    console.error(`  ${t.name}: ${expired} tokens expired in ${seconds.toFixed(1)} s; ${counts}`);
    await scenario.assertSoundEnd(t);
  },
);
