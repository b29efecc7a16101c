import { setTimeout as delay } from "node:timers/promises";
import t from "tap";
import { storedVersionsOf } from "../../src/api/crd.ts";
import { hasFreezeAnnotation } from "../../src/api/owner.ts";
import { assertUnfrozen } from "./assert-no-traces.ts";
import { Cluster, eventually } from "./cluster.ts";
import { createMigration, installSystem, SLOW, startController } from "./controller-fixture.ts";
import { TestKind } from "./crd-fixture.ts";
import { SLOW_FLAGS, SLOW_RUN_OBJECTS, untilRewriting } from "./slow-run.ts";

/** Longer than a run has for cleaning up where it is interrupted, and where something else sweeps after it. */
const DOWN_MS = 40_000;

const cluster = await Cluster.start(t);
await installSystem(cluster);

await t.test("a freeze that could not be lifted while the API server was down is lifted when it is back", async (t) => {
  const [alone, led] = [new TestKind("alone"), new TestKind("led")];
  await cluster.createStale(alone, SLOW_RUN_OBJECTS);
  await cluster.createStale(led, SLOW_RUN_OBJECTS);
  startController(t, cluster, { ...SLOW, guard: "policy", maxIdleMs: 2_000 });
  await createMigration(cluster, led);
  await untilRewriting(cluster, led);
  const flags = ["--settle", "1s", "--standalone", "--guard", "policy", "--max-idle", "2s", ...SLOW_FLAGS];
  const run = cluster.spawnKsvm(t, ["migrate", ...flags, alone.name]);
  await untilRewriting(cluster, alone);
  const [apiserver] = cluster.controlPlane.apiservers;
  await apiserver?.kill();
  await delay(DOWN_MS);
  t.ok(run.isRunning, "the command-line run does not end while its freeze is there");
  apiserver?.start();
  await apiserver?.waitReady();
  const { code, stdout, stderr } = await run.ended;
  t.equal(code, 1);
  t.match(stderr, /\[RetryBudgetExceeded\]/);
  t.match(stdout + stderr, /Cannot lift the freeze of ".*" yet: .*trying again until it works/);
  await assertUnfrozen(t, cluster, alone);
  const isThawed = async (): Promise<boolean> => {
    const crd = await cluster.crd(led);
    return !hasFreezeAnnotation(crd) || storedVersionsOf(crd).length === 1;
  };
  await eventually(isThawed, "the controller lifts its own freeze, too", 120_000);
});
