// An API server that is down for longer than a run has for lifting its freeze: the freeze is lifted when it is back.
import { setTimeout as delay } from "node:timers/promises";
import t from "tap";
import { storedVersionsOf } from "../crd.ts";
import { hasFreezeAnnotation } from "../integration/frozen.ts";
import { assertUnfrozen } from "../integration/assert-no-traces.ts";
import { Cluster, eventually } from "../integration/cluster.ts";
import { SLOWLY, startController } from "../integration/controller.ts";
import { TestKind } from "../integration/crd-fixture.ts";
import { createMigration, installSystem } from "../integration/migrations.ts";
import { SLOW_FLAGS, SLOW_RUN_OBJECTS, untilRewriting } from "../integration/slow-run.ts";

const DOWN_MS = 40_000;

const cluster = await Cluster.start(t, {});
await installSystem(cluster);

await t.test("a freeze that could not be lifted while the API server was down is lifted when it is back", async (t) => {
  const [alone, led] = [new TestKind("alone"), new TestKind("led")];
  await Promise.all([alone, led].map((kind) => cluster.createStale(kind, SLOW_RUN_OBJECTS)));
  await startController(t, cluster, { flags: [...SLOWLY, "--max-idle=2s"] });
  await createMigration(cluster, led);
  let isRunning = true;
  const ended = cluster.migrate(["--standalone", "--max-idle", "2s", ...SLOW_FLAGS, alone.name]);
  void ended.then(() => (isRunning = false));
  await Promise.all([untilRewriting(cluster, led), untilRewriting(cluster, alone)]);
  const [apiserver] = cluster.controlPlane.apiservers;
  await apiserver?.kill();
  await delay(DOWN_MS);
  t.ok(isRunning, "the command-line run does not end while its freeze is there");
  apiserver?.start();
  await apiserver?.waitReady();
  const { code, stdout, stderr } = await ended;
  t.match({ code, stderr }, { code: 1, stderr: /\[RetryBudgetExceeded\]/ });
  t.match(stdout + stderr, /Cannot lift the freeze of ".*" yet: .*trying again until it works/);
  await assertUnfrozen(t, cluster, alone);
  const isThawed = async (): Promise<boolean> => {
    const crd = await cluster.crd(led);
    return !hasFreezeAnnotation(crd) || storedVersionsOf(crd).length === 1;
  };
  await eventually(isThawed, "the controller lifts its own freeze, too");
});
