import { setTimeout as delay } from "node:timers/promises";
import t from "tap";
import type { KsvmEnd } from "./ksvm-process.ts";
import { HELD_WRITES, PausableServers } from "./pausable-servers.ts";
import { announcedSeed, IS_LONG } from "./random.ts";
import { Scenario } from "./scenario.ts";

const seed = announcedSeed("paused-apiserver.test.ts");
const REQUEST_TIMEOUT_S = 8;
const servers = await PausableServers.start(t, { requestTimeoutS: REQUEST_TIMEOUT_S });
const { cluster, first, second } = servers;
// Longer than a request may be under way on an API server that was paused.
const SETTLE = ["--settle", `${REQUEST_TIMEOUT_S + 1}s`];
const FLAGS = [...SETTLE, "--convergence-timeout", "60s", "--apiserver-endpoints", `${first.url},${second.url}`];
const PATIENT = [...FLAGS, "--proof-timeout", "60s"];
const OBJECTS = 150;
const SLOW = ["--max-qps", "60", "--page-size", "20"];

t.teardown(() => first.resume());

function laggingServers({ lines }: KsvmEnd): readonly string[] {
  return [...new Set(lines.flatMap((line) => (line.type === "lagging" ? [line.server] : [])))];
}

await t.test(
  "SIGSTOP of one of two API servers before the run, with writes of the old version under way on it",
  async (t) => {
    let held: Promise<readonly number[]> = Promise.resolve([]);
    const scenario = await Scenario.start(t, cluster, "paused", {
      seed,
      objects: OBJECTS,
      flags: PATIENT,
      beforeStorageChange: async (kind) => {
        held = (await servers.pauseWithWrites(kind)).statuses;
      },
    });
    const run = scenario.startKsvm();
    await run.untilLine("lagging", "error");
    await delay(3_000);
    t.notOk(await scenario.isPruned(), "nothing is pruned while one does not answer");
    await servers.resume();
    const statuses = await held;
    t.notOk(await scenario.isPruned(), "nothing is pruned while a write of the old version is under way");
    const late = await servers.lateWrites(scenario.kind);
    const end = await run.ended;
    t.equal(end.code, 0, end.stderr);
    t.same(laggingServers(end), [second.url], "it said whom it waited for");
    t.ok(late > 0, `${late} of ${HELD_WRITES} writes landed in the old version after SIGCONT`, {
      statuses,
    });
    await scenario.assertSoundEnd(t);
  },
);

if (IS_LONG) {
  await t.test("SIGSTOP of one of two API servers during the run, then SIGCONT", async (t) => {
    const scenario = await Scenario.start(t, cluster, "stopped", { seed: seed + 1, objects: OBJECTS, flags: PATIENT });
    const run = scenario.startKsvm(SLOW);
    await run.untilLine("progress", "error");
    second.pause();
    await run.untilLine("lagging", "error");
    await delay(2_000);
    t.notOk(await scenario.isPruned(), "nothing is pruned while one does not answer");
    second.resume();
    const end = await run.ended;
    t.equal(end.code, 0, end.stderr);
    t.same(laggingServers(end), [second.url], "it said whom it waited for");
    await scenario.assertSoundEnd(t);
  });

  await t.test("SIGSTOP of one of two API servers that does not come back: the run fails with its name", async (t) => {
    const flags = [...FLAGS, "--proof-timeout", "3s"];
    const scenario = await Scenario.start(t, cluster, "silent", { seed: seed + 2, objects: OBJECTS, flags });
    const run = scenario.startKsvm(SLOW);
    await run.untilLine("progress", "error");
    second.pause();
    const end = await run.ended;
    t.equal(end.code, 1);
    t.match(end.stderr, second.url);
    t.match(end.stderr, /\[(FreezeNotProven|NotConverged)\]/);
    t.notOk(await scenario.isPruned());
    second.resume();
    await scenario.assertSoundEnd(t);
  });
}

// Nobody else wants the Lease of the run, so a pause that outlasts it (15 s) does not end it.
for (const pauseMs of IS_LONG ? [3_000, 25_000, 80_000] : [25_000]) {
  await t.test(`SIGSTOP for ${pauseMs / 1_000} s of the API server that the run itself talks to`, async (t) => {
    const options = { seed: seed + pauseMs, objects: OBJECTS, flags: PATIENT, load: { apiservers: [1] } } as const;
    const scenario = await Scenario.start(t, cluster, "own", options);
    const run = scenario.startKsvm(SLOW);
    await run.untilLine("progress", "error");
    first.pause();
    await delay(pauseMs);
    first.resume();
    const end = await run.ended;
    t.equal(end.code, 0, "the run goes on", { stderr: end.stderr });
    await scenario.assertSoundEnd(t);
  });
}
